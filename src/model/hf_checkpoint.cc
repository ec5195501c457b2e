#include "model/hf_checkpoint.h"

#include <algorithm>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "model/coded_tensor.h"
#include "model/config_json.h"
#include "model/quant_config.h"
#include "model/safetensors.h"

namespace tare::model {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxIndexBytes = 256 << 20;

// "model.norm.weight" -> {"model.norm", "weight"}
std::pair<std::string_view, std::string_view> SplitEnd(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {{}, name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

class HuggingFaceCheckpoint : public Checkpoint {
 public:
  HuggingFaceCheckpoint(std::string name, JsonConfig config, const QuantConfig& quantization)
      : name_(std::move(name)), config_(std::move(config)), quantization_(quantization) {}

  const std::string& name() const override { return name_; }
  const ModelConfig& config() const override { return config_.config; }
  const Family& family() const override { return *config_.family; }
  RotaryPairs rotary_pairs() const override { return RotaryPairs::kHalves; }

  std::vector<std::string> TensorNames() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    for (const auto& entry : coded_) names.push_back(entry.first);
    return names;
  }

  std::optional<StoredTensor> Find(std::string_view name) const override {
    if (const auto coded = coded_.find(name); coded != coded_.end()) {
      const TensorForm& form = coded->second.form();
      return StoredTensor{coded->second.name(),
                          {form.rows, form.cols},
                          coded->second.bytes(),
                          coded->second.type_name()};
    }
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return {};
    const SafetensorsTensor& tensor = *found->second.tensor;
    return StoredTensor{found->second.name, tensor.shape, tensor.data.size(), tensor.type.c_str()};
  }

  Result<TensorForm> Form(std::string_view name) const override {
    if (const auto coded = coded_.find(name); coded != coded_.end()) return coded->second.form();
    TARE_TRY(const kernels::TensorView view, View(name));
    return TensorForm{view.type, kernels::NaturalType(view.type), view.rows, view.cols};
  }

  Result<TensorValues> Values(std::string_view name, ThreadPool& pool) const override {
    if (const auto coded = coded_.find(name); coded != coded_.end()) {
      return coded->second.Decode(pool);
    }
    TARE_TRY(const kernels::TensorView view, View(name));
    return TensorValues{view, nullptr};
  }

  std::string FileName(std::string_view name) const override {
    return names().to_hugging_face(name);
  }
  std::shared_ptr<const void> storage() const override { return files_; }

  Status AddFile(const std::filesystem::path& path) {
    TARE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
    files_->push_back(std::move(file));
    const SafetensorsFile& kept = files_->back();
    for (const auto& [name, tensor] : kept.tensors()) {
      if (names().no_use_for(name, config_.config)) continue;
      file_names_.insert(name);
      std::string common = names().to_common(name);
      if (!tensors_.emplace(std::move(common), Place{name, &tensor}).second) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is in another shard already", kept.name(),
                    name);
      }
    }
    return {};
  }

  const FileNames& names() const { return *family().names; }

  // Brings the parts of every coded weight together; call it once, after the last file.
  Status CombineCodes() {
    if (quantization_.method == QuantMethod::kNone) return {};
    std::vector<std::string> stems;  // common names, without the end
    for (const auto& [name, place] : tensors_) {
      const auto [stem, end] = SplitEnd(name);
      if (CodedTensor::HoldsCodes(quantization_, end, *place.tensor)) stems.emplace_back(stem);
    }
    std::size_t wrapping = 0;
    std::string first_wrapping;
    for (const std::string& stem : stems) {
      CodedTensor::Parts parts;
      std::string own_stem;
      const auto first = tensors_.lower_bound(stem + ".");
      for (auto at = first; at != tensors_.end() && at->first.starts_with(stem + ".");) {
        const std::string end(SplitEnd(at->first).second);
        const bool codes = CodedTensor::HoldsCodes(quantization_, end, *at->second.tensor);
        if (at->first.size() != stem.size() + 1 + end.size() ||
            (!codes && !CodedTensor::BelongsToCodes(end) && !IsEmptyBias(stem, end, at->second))) {
          ++at;
          continue;
        }
        if (codes) own_stem = SplitEnd(at->second.name).first;
        const bool of_use = !CodedTensor::IsOfNoUse(end) && end != "bias";
        if (of_use) parts.emplace(end, at->second.tensor);
        at = tensors_.erase(at);
      }
      TARE_TRY(CodedTensor coded,
               CodedTensor::Make(quantization_, name_, std::move(own_stem), std::move(parts)));
      if (tensors_.contains(stem + ".weight")) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is stored both as numbers and as codes",
                    name_, coded.name());
      }
      if (coded.zeros_wrap()) {
        if (wrapping == 0) first_wrapping = coded.name();
        ++wrapping;
      }
      coded_.emplace(stem + ".weight", std::move(coded));
    }
    if (wrapping > 0) {
      LogWarn(
          "{}: zero points of {} weights, '{}' the first, are stored as the largest code, and less "
          "one: they are read as one past it, as AutoGPTQ does, though some programs read 0",
          name_, wrapping, first_wrapping);
    }
    return {};
  }

  // Whether a tensor of this name in the files is known, as itself or as a part of a weight.
  bool HasFileTensor(const std::string& name) const { return file_names_.contains(name); }

 private:
  struct Place {
    std::string name;  // in the file
    const SafetensorsTensor* tensor;
  };

  Result<kernels::TensorView> View(std::string_view name) const {
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

  // Some quantisers write a bias of zeros beside every weight, whether the model has one or not.
  bool IsEmptyBias(std::string_view stem, std::string_view end, const Place& place) const {
    if (end != "bias" || !AllZero(place.tensor->data)) return false;
    const std::string_view part = SplitEnd(stem).second;
    const bool wanted = part == "attn_q" || part == "attn_k" || part == "attn_v";
    return !(wanted && config_.config.attention_bias);
  }

  std::string name_;
  JsonConfig config_;
  QuantConfig quantization_;
  // A list: its elements stay where they are.
  std::shared_ptr<std::list<SafetensorsFile>> files_ =
      std::make_shared<std::list<SafetensorsFile>>();
  std::map<std::string, Place, std::less<>> tensors_;
  std::set<std::string> file_names_;
  std::map<std::string, CodedTensor, std::less<>> coded_;  // by the weight's common name
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

Result<QuantConfig> ReadQuantization(const std::filesystem::path& config_path) {
  TARE_TRY(const std::string text, ReadFile(config_path));
  const json config = json::parse(text, nullptr, false);
  return ReadQuantConfig(config, config_path.string());
}

}  // namespace

std::string FolderName(const std::filesystem::path& folder) {
  std::error_code code;
  const auto whole = (std::filesystem::absolute(folder, code) / "").lexically_normal();
  return whole.parent_path().filename().string();
}

Result<std::unique_ptr<Checkpoint>> OpenHuggingFaceFolder(const std::filesystem::path& folder) {
  const auto config_path = folder / "config.json";
  TARE_TRY(JsonConfig config, ReadJsonConfig(config_path));
  TARE_TRY(const QuantConfig quantization, ReadQuantization(config_path));
  // Without a name of its own the config gives the family's.
  if (config.config.name == config.config.family) config.config.name = FolderName(folder);
  auto checkpoint =
      std::make_unique<HuggingFaceCheckpoint>(folder.string(), std::move(config), quantization);
  std::error_code code;
  const auto single = folder / "model.safetensors";
  if (std::filesystem::exists(single, code)) {
    TARE_RETURN_IF_ERROR(checkpoint->AddFile(single));
    TARE_RETURN_IF_ERROR(checkpoint->CombineCodes());
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
      if (checkpoint->names().no_use_for(name, checkpoint->config())) continue;
      if (!checkpoint->HasFileTensor(name)) {
        return Fail(ErrorKind::kCorrupt, "{}: tensor '{}' is listed in the index, but missing",
                    (folder / shard).string(), name);
      }
    }
  }
  TARE_RETURN_IF_ERROR(checkpoint->CombineCodes());
  return checkpoint;
}

}  // namespace tare::model
