#include "model/sentence_config.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/log.h"
#include "model/json_file.h"

namespace tare::model {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kFileLimit = std::size_t{16} << 20;  // bytes

std::string Text(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

// A positive integer that fits; 0 when there is none.
int Number(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return 0;
  const auto value = found->get<std::uint64_t>();
  return value <= (1u << 30) ? static_cast<int>(value) : 0;
}

Status ReadPooling(const fs::path& path, SentenceConfig& out) {
  TARE_TRY(const Json json, ReadJsonFile(path, kFileLimit));
  if (!json.is_object()) {
    return Fail(ErrorKind::kCorrupt, "'{}' is missing or no JSON object", path.string());
  }
  // Newer files name the mode, older ones have a switch for each.
  std::string mode = Text(json, "pooling_mode");
  if (mode.empty()) {
    for (const auto& [key, on] : json.items()) {
      constexpr std::string_view kSwitch = "pooling_mode_";
      if (!key.starts_with(kSwitch) || !on.is_boolean() || !on.get<bool>()) continue;
      mode += (mode.empty() ? "" : "+") + key.substr(kSwitch.size());
    }
  }
  if (mode == "mean_tokens" || mode == "mean") {
    out.pooling = Pooling::kMean;
  } else if (mode == "cls_token" || mode == "cls") {
    out.pooling = Pooling::kCls;
  } else {
    return Fail(ErrorKind::kUnsupported, "'{}': pooling '{}' is not supported; mean and cls are",
                path.string(), mode.empty() ? "none" : mode);
  }
  return {};
}

Status ReadModules(const fs::path& folder, const Json& modules, SentenceConfig& out) {
  const std::string source = (folder / "modules.json").string();
  if (!modules.is_array()) return Fail(ErrorKind::kCorrupt, "'{}' is not a list", source);
  bool pooled = false;
  out.normalise = false;
  for (const Json& module : modules) {
    const std::string type = Text(module, "type");
    const std::string kind = type.substr(type.rfind('.') + 1);  // all of it without a dot
    if (kind == "Transformer") continue;
    if (kind == "Normalize") {
      out.normalise = true;
    } else if (kind == "Pooling" && !pooled) {
      const fs::path path = Text(module, "path");
      if (path.is_absolute() || path.string().find("..") != std::string::npos) {
        return Fail(ErrorKind::kCorrupt, "'{}': path '{}' leads out of the folder", source,
                    path.string());
      }
      TARE_RETURN_IF_ERROR(ReadPooling(folder / path / "config.json", out));
      pooled = true;
    } else {
      return Fail(
          ErrorKind::kUnsupported,
          "'{}': module '{}' is not supported; a Transformer, one Pooling and Normalize are",
          source, type);
    }
  }
  if (!pooled) return Fail(ErrorKind::kUnsupported, "'{}' has no pooling", source);
  return {};
}

}  // namespace

const char* ToString(Pooling pooling) { return pooling == Pooling::kMean ? "mean" : "cls"; }

Result<SentenceConfig> ReadSentenceConfig(const fs::path& folder, const ModelConfig& config) {
  SentenceConfig out;
  TARE_TRY(const Json modules, ReadJsonFile(folder / "modules.json", kFileLimit));
  if (modules.is_null()) {
    LogWarn("'{}' has no modules.json: its vectors are the mean of all tokens, normalised",
            folder.string());
  } else {
    TARE_RETURN_IF_ERROR(ReadModules(folder, modules, out));
  }
  TARE_TRY(const Json sentence, ReadJsonFile(folder / "sentence_bert_config.json", kFileLimit));
  TARE_TRY(const Json tokenizer, ReadJsonFile(folder / "tokenizer_config.json", kFileLimit));
  out.max_length = Number(sentence, "max_seq_length");
  if (out.max_length == 0) out.max_length = Number(tokenizer, "model_max_length");
  if (out.max_length == 0) out.max_length = config.context_length;
  out.max_length = std::min(out.max_length, config.context_length);
  TARE_TRY(const Json facts, ReadJsonFile(folder / "config.json", kFileLimit));
  if (facts.is_object() && facts.contains("matryoshka_dimensions") &&
      facts["matryoshka_dimensions"].is_array()) {
    for (const Json& dimension : facts["matryoshka_dimensions"]) {
      const bool fits = dimension.is_number_unsigned() &&
                        std::cmp_less_equal(dimension.get<std::uint64_t>(), config.hidden);
      if (fits && dimension != 0) out.dimensions.push_back(dimension.get<int>());
    }
    std::sort(out.dimensions.begin(), out.dimensions.end());
  }
  return out;
}

}  // namespace tare::model
