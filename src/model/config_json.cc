#include "model/config_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/config_check.h"
#include "model/parameter_count.h"

namespace tare::model {
namespace {

constexpr std::size_t kMaxConfigBytes = 16 << 20;

// "rope_scaling", or "rope_parameters" of newer files, which holds the base as well.
Status ReadRope(const JsonKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  TARE_TRY(rope.theta, keys.FloatOr("rope_theta", 10000.0f));
  auto scaling = keys.Object("rope_scaling");
  if (!scaling && scaling.error().kind == ErrorKind::kNotFound) {
    scaling = keys.Object("rope_parameters");
  }
  if (!scaling) {
    if (scaling.error().kind == ErrorKind::kNotFound) return {};
    return tl::unexpected(std::move(scaling).error());
  }
  TARE_TRY(rope.theta, scaling->FloatOr("rope_theta", rope.theta));
  TARE_TRY(const auto old_name, scaling->StringOr("type", "default"));
  TARE_TRY(const auto type, scaling->StringOr("rope_type", old_name));
  TARE_TRY(rope.factor, scaling->FloatOr("factor", 1.0f));
  TARE_TRY(rope.original_context,
           scaling->CountOr("original_max_position_embeddings", config.context_length));
  if (type == "default") {
    rope.factor = 1.0f;
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    TARE_TRY(rope.low_frequency_factor, scaling->FloatOr("low_freq_factor", 1.0f));
    TARE_TRY(rope.high_frequency_factor, scaling->FloatOr("high_freq_factor", 4.0f));
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    TARE_TRY(rope.beta_fast, scaling->FloatOr("beta_fast", 32.0f));
    TARE_TRY(rope.beta_slow, scaling->FloatOr("beta_slow", 1.0f));
    const auto optional = [&](const char* key, std::optional<float>& out) -> Status {
      if (!scaling->Has(key)) return {};
      TARE_TRY(out, scaling->FloatOr(key, 0.0f));
      return {};
    };
    TARE_RETURN_IF_ERROR(optional("mscale", rope.mscale));
    TARE_RETURN_IF_ERROR(optional("mscale_all_dim", rope.mscale_all_dim));
    TARE_RETURN_IF_ERROR(optional("attention_factor", rope.attention_factor));
  } else {
    return Fail(ErrorKind::kUnsupported,
                "{}: rotary scaling '{}' is not supported; supported are linear, llama3 and yarn",
                keys.source(), type);
  }
  return {};
}

// Switches that change what is computed and that no family here has on.
Status RefuseVariants(const JsonKeys& keys) {
  TARE_TRY(const auto act, keys.StringOr("hidden_act", "silu"));
  if (act != "silu") {
    return Fail(ErrorKind::kUnsupported, "{}: hidden_act '{}' is not supported, silu is",
                keys.source(), act);
  }
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    TARE_TRY(const bool on, keys.BoolOr(key, false));
    if (on) return Fail(ErrorKind::kUnsupported, "{}: {} is not supported", keys.source(), key);
  }
  return {};
}

}  // namespace

const nlohmann::json* JsonKeys::Find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

tl::unexpected<Error> JsonKeys::Wrong(const char* key, const char* wanted) const {
  return Fail(ErrorKind::kCorrupt, "{}: key '{}' is {}, {} is needed", source_, key,
              (*object_)[key].type_name(), wanted);
}

bool JsonKeys::Has(const char* key) const { return Find(key) != nullptr; }

Result<int> JsonKeys::Count(const char* key) const {
  const auto* value = Find(key);
  if (value == nullptr) {
    return Fail(ErrorKind::kNotFound, "{}: key '{}' is missing", source_, key);
  }
  if (!value->is_number_integer()) return Wrong(key, "an integer");
  const bool fits =
      value->is_number_unsigned() && value->get<std::uint64_t>() <= std::numeric_limits<int>::max();
  if (!fits) {
    return Fail(ErrorKind::kCorrupt, "{}: key '{}' is {}, which no model has", source_, key,
                value->dump());
  }
  return value->get<int>();
}

Result<int> JsonKeys::CountOr(const char* key, int missing) const {
  return Has(key) ? Count(key) : Result<int>(missing);
}

Result<float> JsonKeys::FloatOr(const char* key, float missing) const {
  const auto* value = Find(key);
  if (value == nullptr) return missing;
  if (!value->is_number()) return Wrong(key, "a number");
  return value->get<float>();
}

Result<bool> JsonKeys::BoolOr(const char* key, bool missing) const {
  const auto* value = Find(key);
  if (value == nullptr) return missing;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::string> JsonKeys::StringOr(const char* key, std::string_view missing) const {
  const auto* value = Find(key);
  if (value == nullptr) return std::string(missing);
  if (!value->is_string()) return Wrong(key, "a string");
  return value->get<std::string>();
}

Result<JsonKeys> JsonKeys::Object(const char* key) const {
  const auto* value = Find(key);
  if (value == nullptr) {
    return Fail(ErrorKind::kNotFound, "{}: key '{}' is missing", source_, key);
  }
  if (!value->is_object()) return Wrong(key, "an object");
  return JsonKeys(*value, source_ + ": " + key);
}

Result<JsonConfig> ParseJsonConfig(std::string_view text, const std::string& source) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Fail(ErrorKind::kCorrupt, "{} is not a JSON object", source);
  }
  const JsonKeys keys(json, source);
  TARE_TRY(const auto model_type, keys.StringOr("model_type", ""));
  if (model_type.empty()) {
    return Fail(ErrorKind::kCorrupt,
                "{}: key 'model_type' is missing; is it a model's config.json?", source);
  }
  auto family = FamilyOfHuggingFace(model_type);
  if (!family) return Context(std::move(family).error(), "{}", source);
  JsonConfig out;
  out.family = *family;
  ModelConfig& c = out.config;
  c.family = out.family->name;
  TARE_TRY(c.name, keys.StringOr("_name_or_path", ""));
  if (c.name.empty()) c.name = model_type;
  TARE_TRY(c.layers, keys.Count("num_hidden_layers"));
  TARE_TRY(c.hidden, keys.Count("hidden_size"));
  TARE_TRY(c.heads, keys.Count("num_attention_heads"));
  TARE_TRY(c.kv_heads, keys.CountOr("num_key_value_heads", c.heads));
  TARE_TRY(c.intermediate, keys.Count("intermediate_size"));
  TARE_TRY(c.vocab, keys.Count("vocab_size"));
  TARE_TRY(c.context_length, keys.Count("max_position_embeddings"));
  TARE_TRY(c.norm_epsilon, keys.FloatOr("rms_norm_eps", 1e-6f));
  TARE_TRY(c.tied_embeddings, keys.BoolOr("tie_word_embeddings", false));
  TARE_TRY(c.head_dim, keys.CountOr("head_dim", c.heads > 0 ? c.hidden / c.heads : 0));
  c.rope.dims = c.head_dim;
  TARE_TRY(c.prediction_layers, keys.CountOr("num_nextn_predict_layers", 0));
  if (!out.family->encoder) {
    TARE_RETURN_IF_ERROR(RefuseVariants(keys));
    TARE_RETURN_IF_ERROR(ReadRope(keys, c));
  }
  if (out.family->adjust_json != nullptr) {
    TARE_RETURN_IF_ERROR(out.family->adjust_json(keys, c));
  }
  if (out.family->adjust != nullptr) TARE_RETURN_IF_ERROR(out.family->adjust(c));
  TARE_RETURN_IF_ERROR(CheckConfig(c, source));
  const ParameterCount count = CountParameters(c);
  c.parameters = count.total();
  c.active_parameters = count.active();
  return out;
}

Result<JsonConfig> ReadJsonConfig(const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ParseJsonConfig(text, path.string());
}

}  // namespace tare::model
