#include "model/load.h"

#include <array>

#include "base/text.h"
#include "model/decoder.h"
#include "model/gguf_checkpoint.h"
#include "model/weight_loader.h"

namespace tare::model {
namespace {

using kernels::WeightType;

Result<MemoryNeed> Estimate(const Checkpoint& checkpoint, std::optional<WeightType> dtype,
                            std::uint64_t kv_tokens, kernels::KvType kv_type) {
  MemoryNeed need;
  const ModelConfig& config = checkpoint.config();
  for (const std::string& name : checkpoint.TensorNames()) {
    const auto stored = checkpoint.Find(name);
    if (stored->shape.size() < 2) continue;  // vectors are small
    TARE_TRY(const kernels::TensorView view, checkpoint.View(name));
    const bool table = name == "token_embd.weight";
    if (table) need.weights += view.data.size();  // gathered from as stored
    if (table && !config.tied_embeddings) continue;
    const MatrixRole role =
        table || name == "output.weight" ? MatrixRole::kHead : MatrixRole::kLayer;
    need.weights += PackedBytes(ChooseType(dtype, role, {&view.type, 1}), view.rows, view.cols);
  }
  need.kv = kv_tokens * KvBytesPerToken(config, kv_type);
  need.working = WorkingBytes(config);
  return need;
}

}  // namespace

Result<std::optional<WeightType>> ParseDtype(std::string_view text) {
  constexpr std::array kTypes = {WeightType::kF32, WeightType::kBf16, WeightType::kInt8,
                                 WeightType::kInt4};
  constexpr std::array<std::string_view, 4> kNames = {"f32", "bf16", "int8", "int4"};
  if (text == "auto") return std::optional<WeightType>();
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (text == kNames[i]) return std::optional<WeightType>(kTypes[i]);
  }
  return FailParam("dtype", "dtype '{}' is not known; it may be auto, f32, bf16, int8 or int4",
                   text);
}

Result<std::unique_ptr<LanguageModel>> LoadModel(const GgufFile& file, const LoadOptions& options) {
  TARE_TRY(const auto checkpoint, MakeGgufCheckpoint(file));
  if (options.check_memory) {
    TARE_TRY(const MemoryNeed need,
             Estimate(*checkpoint, options.dtype, 0, kernels::KvType::kBf16));
    TARE_TRY(const std::uint64_t available, AvailableMemory());
    TARE_RETURN_IF_ERROR(CheckFits(need, available, checkpoint->name()));
  }
  return LoadDecoder(*checkpoint, options);
}

Result<MemoryNeed> EstimateMemory(const GgufFile& file, std::optional<WeightType> dtype,
                                  std::uint64_t kv_tokens, kernels::KvType kv_type) {
  TARE_TRY(const auto checkpoint, MakeGgufCheckpoint(file));
  return Estimate(*checkpoint, dtype, kv_tokens, kv_type);
}

}  // namespace tare::model
