#include "model/config_gguf.h"

#include <limits>
#include <string>

#include "model/config_check.h"
#include "model/parameter_count.h"

namespace tare::model {
namespace {

Status ReadRope(const GgufFile& file, const GgufKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  TARE_TRY(rope.theta, keys.FloatOr("rope.freq_base", 10000.0f));
  TARE_TRY(rope.dims, keys.CountOr("rope.dimension_count", config.head_dim));
  TARE_TRY(const auto scaling, keys.StringOr("rope.scaling.type", "none"));
  TARE_TRY(rope.factor, keys.FloatOr("rope.scaling.factor", 1.0f));
  TARE_TRY(rope.original_context,
           keys.CountOr("rope.scaling.original_context_length", config.context_length));
  if (scaling == "none" || scaling.empty()) {
    rope.factor = 1.0f;
  } else if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    TARE_TRY(rope.beta_fast, keys.FloatOr("rope.scaling.yarn_beta_fast", rope.beta_fast));
    TARE_TRY(rope.beta_slow, keys.FloatOr("rope.scaling.yarn_beta_slow", rope.beta_slow));
  } else {
    return Fail(ErrorKind::kUnsupported,
                "{}: rotary scaling '{}' is not supported; supported are none, linear and yarn",
                file.name(), scaling);
  }
  return {};
}

Result<int> VocabSize(const GgufFile& file, const GgufKeys& keys) {
  if (keys.Has("vocab_size")) return keys.Count("vocab_size");
  if (const GgufTensor* table = file.Find("token_embd.weight"); table != nullptr) {
    if (table->dims[1] <= std::numeric_limits<int>::max()) return static_cast<int>(table->dims[1]);
  }
  return Fail(ErrorKind::kCorrupt, "{}: neither key 'vocab_size' nor tensor 'token_embd.weight'",
              file.name());
}

}  // namespace

GgufKeys::GgufKeys(const GgufFile& file, std::string_view architecture)
    : file_(file), prefix_(std::string(architecture) + ".") {}

Result<int> GgufKeys::Narrow(std::string_view key, Result<std::int64_t> value) const {
  if (!value) return tl::unexpected(std::move(value).error());
  if (*value < 0 || *value > std::numeric_limits<int>::max()) {
    return Fail(ErrorKind::kCorrupt, "{}: key '{}{}' is {}, which no model has", file_.name(),
                prefix_, key, *value);
  }
  return static_cast<int>(*value);
}

bool GgufKeys::Has(std::string_view key) const { return file_.Has(Full(key)); }
Result<int> GgufKeys::Count(std::string_view key) const {
  return Narrow(key, file_.Int(Full(key)));
}
Result<int> GgufKeys::CountOr(std::string_view key, std::int64_t missing) const {
  return Narrow(key, file_.IntOr(Full(key), missing));
}
Result<float> GgufKeys::FloatOr(std::string_view key, float missing) const {
  TARE_TRY(const double value, file_.FloatOr(Full(key), missing));
  return static_cast<float>(value);
}
Result<bool> GgufKeys::BoolOr(std::string_view key, bool missing) const {
  return file_.BoolOr(Full(key), missing);
}
Result<std::string_view> GgufKeys::StringOr(std::string_view key, std::string_view missing) const {
  return file_.StringOr(Full(key), missing);
}

Result<GgufConfig> ReadGgufConfig(const GgufFile& file) {
  TARE_TRY(const auto architecture, file.String("general.architecture"));
  auto family = FamilyOfGguf(architecture);
  if (!family) return Context(std::move(family).error(), "{}", file.name());
  TARE_TRY(const auto parts, file.IntOr("split.count", 1));
  if (parts > 1) {
    return Fail(ErrorKind::kUnsupported,
                "{} is one of {} parts of a model; join them with llama-gguf-split --merge",
                file.name(), parts);
  }
  GgufConfig out;
  out.family = *family;
  ModelConfig& c = out.config;
  c.family = out.family->name;
  TARE_TRY(c.name, file.StringOr("general.name", c.family));
  const GgufKeys keys(file, architecture);
  TARE_TRY(c.layers, keys.Count("block_count"));
  TARE_TRY(c.hidden, keys.Count("embedding_length"));
  TARE_TRY(c.heads, keys.Count("attention.head_count"));
  TARE_TRY(c.kv_heads, keys.CountOr("attention.head_count_kv", c.heads));
  TARE_TRY(c.intermediate, keys.Count("feed_forward_length"));
  TARE_TRY(c.context_length, keys.Count("context_length"));
  TARE_TRY(c.vocab, VocabSize(file, keys));
  TARE_TRY(c.norm_epsilon, keys.FloatOr("attention.layer_norm_rms_epsilon", c.norm_epsilon));
  const int even_head = c.heads > 0 ? c.hidden / c.heads : 0;
  TARE_TRY(c.head_dim, keys.CountOr("attention.key_length", even_head));
  TARE_TRY(const int value_dim, keys.CountOr("attention.value_length", c.head_dim));
  TARE_RETURN_IF_ERROR(ReadRope(file, keys, c));
  c.tied_embeddings = file.Find("output.weight") == nullptr;
  if (out.family->adjust_gguf != nullptr) {
    TARE_RETURN_IF_ERROR(out.family->adjust_gguf(file, c));
  }
  if (out.family->adjust != nullptr) TARE_RETURN_IF_ERROR(out.family->adjust(c));
  if (!c.latent && value_dim != c.head_dim) {
    return Fail(ErrorKind::kUnsupported, "{}: heads of {} for keys and {} for values", file.name(),
                c.head_dim, value_dim);
  }
  TARE_RETURN_IF_ERROR(CheckConfig(c, file.name()));
  const ParameterCount count = CountParameters(c);
  c.parameters = count.total();
  c.active_parameters = count.active();
  return out;
}

}  // namespace tare::model
