#include "model/lora_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tare::model {
namespace {

using json = nlohmann::ordered_json;  // the order of patterns counts

constexpr std::int64_t kMaxRank = 65536;
constexpr double kMaxAlpha = 1e6;

// Keys that say how the adapter was trained, or that are read below.
constexpr std::string_view kHarmless[] = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout",
    // A base's Conv1D keeps its own weights transposed; A and B are stored alike, and no family
    // here has one.
    "fan_in_fan_out", "bias", "use_rslora", "init_lora_weights", "layers_to_transform",
    "layers_pattern", "rank_pattern", "alpha_pattern", "megatron_core", "loftq_config",
    "eva_config", "lora_ga_config", "qalora_group_size", "ensure_weight_tying"};
// What some keys are, for messages.
constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
    {"use_dora", "DoRA, which rescales the base's weights"},
    {"modules_to_save", "whole modules stored beside the low-rank ones"},
    {"lora_bias", "a bias beside B"},
    {"layer_replication", "layers of the base used several times"},
    {"trainable_token_indices", "embeddings of tokens of its own"},
    {"target_parameters", "parameters that are no linear layer's"},
    {"alora_invocation_tokens", "activated LoRA, which begins in the middle of a prompt"},
    {"use_qalora", "QA-LoRA, which averages inputs in groups"},
    {"corda_config", "CorDA, which changes the base's weights"},
};
// Ways to begin training that leave the base's weights changed.
constexpr std::string_view kChangesBase[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

// A value for a message. Lists and objects by what they are: writing them goes as deep as they are
// nested, which may be deeper than the stack.
std::string Shown(const json& value) {
  return value.is_structured() ? value.type_name()
                               : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

tl::unexpected<Error> Bad(const std::string& source, std::string_view key, const json& value,
                          std::string_view wanted) {
  return Fail(ErrorKind::kCorrupt, "{}: key '{}' is {}; {} (save the adapter again with PEFT)",
              source, key, Shown(value), wanted);
}

bool IsNothing(const json& value) {
  return value.is_null() || value == false || value == "" ||
         ((value.is_object() || value.is_array()) && value.empty());
}

Result<int> ReadRank(const std::string& source, std::string_view key, const json& value) {
  if (!value.is_number_integer() || value < 1 || value > kMaxRank) {
    return Bad(source, key, value, "a rank of at least 1 is needed");
  }
  return value.get<int>();
}

Result<double> ReadAlpha(const std::string& source, std::string_view key, const json& value) {
  if (!value.is_number() || !(std::abs(value.get<double>()) <= kMaxAlpha)) {
    return Bad(source, key, value, "a number up to a million is needed");
  }
  return value.get<double>();
}

// PEFT reads these names as regular expressions; plain ones are what people write.
bool IsPlainName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

template <typename Value, typename Read>
Status ReadPattern(const json& config, const std::string& source, const char* key, const Read& read,
                   std::vector<std::pair<std::string, Value>>& out) {
  const auto pattern = config.find(key);
  if (pattern == config.end() || pattern->is_null()) return {};
  if (!pattern->is_object()) return Bad(source, key, *pattern, "an object is needed");
  for (const auto& [name, value] : pattern->items()) {
    if (!IsPlainName(name)) {
      return Fail(ErrorKind::kUnsupported,
                  "{}: '{}' names the modules '{}' by a regular expression; only the ends of "
                  "modules' names are read: list them",
                  source, key, name);
    }
    TARE_TRY(const Value one, read(source, fmt::format("{}.{}", key, name), value));
    out.emplace_back(name, one);
  }
  return {};
}

Status ReadTargets(const json& config, const std::string& source, LoraConfig& out) {
  const auto targets = config.find("target_modules");
  if (targets == config.end() || targets->is_null() || targets->is_string()) return {};
  if (!targets->is_array()) return Bad(source, "target_modules", *targets, "names are needed");
  for (const json& target : *targets) {
    if (!target.is_string() || target.get_ref<const std::string&>().empty()) {
      return Bad(source, "target_modules", target, "a module's name is needed");
    }
    out.targets.push_back(target.get<std::string>());
  }
  return {};
}

Status RefuseVariants(const json& config, const std::string& source) {
  const auto type = config.find("peft_type");
  if (type == config.end() || *type != "LORA") {
    return Fail(ErrorKind::kUnsupported,
                "{}: its peft_type is {}, only LORA adapters can be loaded", source,
                type == config.end() ? "missing" : Shown(*type));
  }
  const auto bias = config.find("bias");
  if (bias != config.end() && !bias->is_null() && *bias != "none") {
    return Fail(ErrorKind::kUnsupported,
                "{}: bias is {}: the base's biases were trained too, which cannot be loaded; train "
                "with bias \"none\"",
                source, Shown(*bias));
  }
  const auto init = config.find("init_lora_weights");
  if (init != config.end() && init->is_string()) {
    const auto& word = init->get_ref<const std::string&>();
    for (const std::string_view way : kChangesBase) {
      if (!word.starts_with(way)) continue;
      return Fail(ErrorKind::kUnsupported,
                  "{}: init_lora_weights is '{}': its training changed the base's weights, so it "
                  "does not fit the base as published; convert it with PEFT's "
                  "path_initial_model_for_weight_conversion",
                  source, word);
    }
  }
  for (const auto& [key, value] : config.items()) {
    if (IsNothing(value) || std::ranges::find(kHarmless, key) != std::end(kHarmless)) continue;
    std::string_view meaning = "not known here";
    for (const auto& [name, what] : kMeanings) {
      if (key == name) meaning = what;
    }
    return Fail(ErrorKind::kUnsupported,
                "{}: '{}' is set ({}): only plain LoRA adapters can be loaded; merge it into its "
                "base with PEFT and serve the result instead",
                source, key, meaning);
  }
  return {};
}

template <typename Value>
Value ValueOf(const std::vector<std::pair<std::string, Value>>& pattern, std::string_view module,
              Value otherwise) {
  for (const auto& [end, value] : pattern) {
    if (EndsInModule(module, end)) return value;
  }
  return otherwise;
}

}  // namespace

bool EndsInModule(std::string_view module, std::string_view end) {
  if (!module.ends_with(end)) return false;
  return module.size() == end.size() || module[module.size() - end.size() - 1] == '.';
}

int LoraConfig::RankOf(std::string_view module) const {
  return ValueOf(rank_pattern, module, rank);
}

double LoraConfig::ScaleOf(std::string_view module) const {
  const double by = RankOf(module);
  return ValueOf(alpha_pattern, module, alpha) / (rank_stabilised ? std::sqrt(by) : by);
}

Result<LoraConfig> ParseLoraConfig(std::string_view text, const std::string& source) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return Fail(ErrorKind::kCorrupt, "{} is no JSON object: fetch the adapter again", source);
  }
  TARE_RETURN_IF_ERROR(RefuseVariants(config, source));
  LoraConfig out;
  if (const auto rank = config.find("r"); rank != config.end()) {
    TARE_TRY(out.rank, ReadRank(source, "r", *rank));
  }
  if (const auto alpha = config.find("lora_alpha"); alpha != config.end()) {
    TARE_TRY(out.alpha, ReadAlpha(source, "lora_alpha", *alpha));
  }
  if (const auto stabilised = config.find("use_rslora"); stabilised != config.end()) {
    if (!stabilised->is_boolean() && !stabilised->is_null()) {
      return Bad(source, "use_rslora", *stabilised, "true or false is needed");
    }
    out.rank_stabilised = *stabilised == true;
  }
  TARE_RETURN_IF_ERROR(ReadPattern(config, source, "rank_pattern", ReadRank, out.rank_pattern));
  TARE_RETURN_IF_ERROR(ReadPattern(config, source, "alpha_pattern", ReadAlpha, out.alpha_pattern));
  TARE_RETURN_IF_ERROR(ReadTargets(config, source, out));
  return out;
}

}  // namespace tare::model
