#include "model/hf_checkpoint.h"

#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/text.h"
#include "model/config_json.h"
#include "model/safetensors.h"

namespace tare::model {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxIndexBytes = 256 << 20;

// Common name and Hugging Face name of what every layer may have.
constexpr std::pair<std::string_view, std::string_view> kLayerParts[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr std::pair<std::string_view, std::string_view> kWholeParts[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

std::string Join(std::string_view part, std::string_view suffix) {
  return std::string(part) + "." + std::string(suffix);
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; the name itself when there is
// no translation.
std::string ToHuggingFace(std::string_view name) {
  const std::vector<std::string_view> words = Split(name, '.');
  if (words.size() == 2) {
    for (const auto& [common, hf] : kWholeParts) {
      if (words[0] == common) return Join(hf, words[1]);
    }
  }
  if (words.size() == 4 && words[0] == "blk") {
    for (const auto& [common, hf] : kLayerParts) {
      if (words[2] == common) return fmt::format("model.layers.{}.{}.{}", words[1], hf, words[3]);
    }
  }
  return std::string(name);
}

// The reverse.
std::string ToCommon(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view part = name.substr(0, dot);
  const std::string_view suffix = name.substr(dot + 1);
  for (const auto& [common, hf] : kWholeParts) {
    if (part == hf) return Join(common, suffix);
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (!part.starts_with(kLayers)) return std::string(name);
  const std::string_view rest = part.substr(kLayers.size());
  const std::size_t after = rest.find('.');
  if (after == std::string_view::npos) return std::string(name);
  for (const auto& [common, hf] : kLayerParts) {
    if (rest.substr(after + 1) == hf) {
      return fmt::format("blk.{}.{}.{}", rest.substr(0, after), common, suffix);
    }
  }
  return std::string(name);
}

// Old files carry rotary tables that follow from the config; a tied head may be stored twice.
bool Redundant(std::string_view name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

class HuggingFaceCheckpoint : public Checkpoint {
 public:
  HuggingFaceCheckpoint(std::string name, JsonConfig config)
      : name_(std::move(name)), config_(std::move(config)) {}

  const std::string& name() const override { return name_; }
  const ModelConfig& config() const override { return config_.config; }
  const Family& family() const override { return *config_.family; }
  RotaryPairs rotary_pairs() const override { return RotaryPairs::kHalves; }

  std::vector<std::string> TensorNames() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }

  std::optional<StoredTensor> Find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return {};
    const SafetensorsTensor& tensor = *found->second.tensor;
    return StoredTensor{found->second.name, tensor.shape, tensor.data.size(), tensor.type.c_str()};
  }

  Result<kernels::TensorView> View(std::string_view name) const override {
    const auto found = tensors_.find(name);
    TARE_CHECK(found != tensors_.end());
    const SafetensorsTensor& tensor = *found->second.tensor;
    if (!tensor.stored) {
      return Fail(ErrorKind::kUnsupported,
                  "{}: tensor '{}' has dtype {}, which cannot be computed with; F32, F16 and BF16 "
                  "can",
                  name_, found->second.name, tensor.type);
    }
    const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    return kernels::TensorView{*tensor.stored, rows, cols, tensor.data};
  }

  std::string FileName(std::string_view name) const override { return ToHuggingFace(name); }
  std::shared_ptr<const void> storage() const override { return files_; }

  Status AddFile(const std::filesystem::path& path) {
    TARE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
    files_->push_back(std::move(file));
    const SafetensorsFile& kept = files_->back();
    for (const auto& [name, tensor] : kept.tensors()) {
      if (Redundant(name, config_.config)) continue;
      if (!tensors_.emplace(ToCommon(name), Place{name, &tensor}).second) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is in another shard already", kept.name(),
                    name);
      }
    }
    return {};
  }

 private:
  struct Place {
    std::string name;  // in the file
    const SafetensorsTensor* tensor;
  };

  std::string name_;
  JsonConfig config_;
  // A list: its elements stay where they are.
  std::shared_ptr<std::list<SafetensorsFile>> files_ =
      std::make_shared<std::list<SafetensorsFile>>();
  std::map<std::string, Place, std::less<>> tensors_;
};

// Shard file -> names of the tensors it must hold.
Result<std::map<std::string, std::vector<std::string>>> ReadIndex(
    const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path, kMaxIndexBytes));
  const json index = json::parse(text, nullptr, false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return Fail(ErrorKind::kCorrupt, "{}: has no object 'weight_map'", path.string());
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.empty() || shard.find('/') != std::string::npos || shard.starts_with('.')) {
      return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' has no plain file name", path.string(),
                  tensor);
    }
    shards[shard].push_back(tensor);
  }
  return shards;
}

Status RefuseQuantized(const std::filesystem::path& config_path) {
  TARE_TRY(const std::string text, ReadFile(config_path));
  const json config = json::parse(text, nullptr, false);
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return {};
  const std::string method =
      found->is_object() && found->contains("quant_method") && (*found)["quant_method"].is_string()
          ? (*found)["quant_method"].get<std::string>()
          : "unnamed";
  return Fail(ErrorKind::kUnsupported,
              "{}: the checkpoint is quantised with '{}', which cannot be loaded; use the model's "
              "16-bit files, or a GGUF file",
              config_path.string(), method);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenHuggingFaceFolder(const std::filesystem::path& folder) {
  const auto config_path = folder / "config.json";
  TARE_TRY(JsonConfig config, ReadJsonConfig(config_path));
  TARE_RETURN_IF_ERROR(RefuseQuantized(config_path));
  auto checkpoint = std::make_unique<HuggingFaceCheckpoint>(folder.string(), std::move(config));
  std::error_code code;
  const auto single = folder / "model.safetensors";
  if (std::filesystem::exists(single, code)) {
    TARE_RETURN_IF_ERROR(checkpoint->AddFile(single));
    return checkpoint;
  }
  const auto index_path = folder / "model.safetensors.index.json";
  if (!std::filesystem::exists(index_path, code)) {
    return Fail(ErrorKind::kNotFound,
                "'{}' holds neither model.safetensors nor model.safetensors.index.json",
                folder.string());
  }
  TARE_TRY(const auto shards, ReadIndex(index_path));
  for (const auto& [shard, names] : shards) {
    TARE_RETURN_IF_ERROR(checkpoint->AddFile(folder / shard));
    for (const std::string& name : names) {
      if (Redundant(name, checkpoint->config())) continue;
      if (!checkpoint->Find(ToCommon(name))) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is listed in the index, but missing",
                    (folder / shard).string(), name);
      }
    }
  }
  return checkpoint;
}

}  // namespace tare::model
