#include "model/load.h"
#include "kernels/isa.h"

#include <array>

#include "model/decoder.h"
#include "model/gguf_checkpoint.h"
#include "model/hf_checkpoint.h"
#include "model/weight_loader.h"

namespace tare::model {
namespace {

using kernels::WeightType;

// A pointer that does not own: for a checkpoint that is gone before the call returns.
std::shared_ptr<const GgufFile> Borrow(const GgufFile& file) {
  return {std::shared_ptr<const GgufFile>(), &file};
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

Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) return OpenHuggingFaceFolder(path);
  TARE_TRY(GgufFile file, GgufFile::Open(path));
  return MakeGgufCheckpoint(std::make_shared<const GgufFile>(std::move(file)));
}

Result<std::unique_ptr<LanguageModel>> LoadModel(const Checkpoint& checkpoint,
                                                 const LoadOptions& options) {
  TARE_RETURN_IF_ERROR(kernels::CheckIsaEnvironment());
  if (checkpoint.family().encoder) {
    return Fail(ErrorKind::kUnsupported,
                "{}: family {} makes embeddings and writes no text; `tare serve` answers "
                "/v1/embeddings with it",
                checkpoint.name(), checkpoint.family().name);
  }
  if (options.check_memory) {
    TARE_TRY(const MemoryNeed need, EstimateMemory(checkpoint, options.dtype, 0));
    TARE_TRY(const std::uint64_t available, AvailableMemory());
    TARE_RETURN_IF_ERROR(CheckFits(need, available, checkpoint.name()));
  }
  return LoadDecoder(checkpoint, options);
}

Result<std::unique_ptr<LanguageModel>> LoadModel(const GgufFile& file, const LoadOptions& options) {
  TARE_TRY(const auto checkpoint, MakeGgufCheckpoint(Borrow(file)));
  return LoadModel(*checkpoint, options);
}

Result<MemoryNeed> EstimateMemory(const Checkpoint& checkpoint, std::optional<WeightType> dtype,
                                  std::uint64_t kv_tokens, kernels::KvType kv_type) {
  MemoryNeed need;
  const ModelConfig& config = checkpoint.config();
  const auto take = [&](MatrixRole role, WeightType natural, int count, std::int64_t rows,
                        std::int64_t cols) {
    need.weights += static_cast<std::uint64_t>(count) *
                    PackedBytes(ChooseType(dtype, role, {&natural, 1}), rows, cols);
  };
  for (const std::string& name : checkpoint.TensorNames()) {
    const auto stored = checkpoint.Find(name);
    if (stored->shape.size() < 2) continue;  // vectors are small
    TARE_TRY(const TensorForm form, checkpoint.Form(name));
    const bool table = name == "token_embd.weight" || name == "position_embd.weight" ||
                       name == "token_types.weight";
    if (table) need.weights += stored->bytes;  // gathered from as stored
    if (table && (config.encoder || !config.tied_embeddings)) continue;
    if (config.latent && name.ends_with("attn_kv_b.weight")) {  // taken apart by head
      const LatentAttentionConfig& m = *config.latent;
      take(MatrixRole::kLatent, form.natural, config.heads, m.kv_rank, m.nope_dim);
      take(MatrixRole::kLatent, form.natural, config.heads, m.value_dim, m.kv_rank);
      continue;
    }
    const bool latent = name.ends_with("attn_k_b.weight") || name.ends_with("attn_v_b.weight");
    const MatrixRole role = table || name == "output.weight"        ? MatrixRole::kHead
                            : name.ends_with("ffn_gate_inp.weight") ? MatrixRole::kRouter
                            : latent                                ? MatrixRole::kLatent
                                                                    : MatrixRole::kLayer;
    const bool set = stored->shape.size() == 3;
    const int count = set ? static_cast<int>(stored->shape[0]) : 1;
    take(role, form.natural, count, set ? stored->shape[1] : form.rows, form.cols);
  }
  need.kv = kv_tokens * KvBytesPerToken(config, kv_type);
  need.working = WorkingBytes(config);
  return need;
}

Result<MemoryNeed> EstimateMemory(const GgufFile& file, std::optional<WeightType> dtype,
                                  std::uint64_t kv_tokens, kernels::KvType kv_type) {
  TARE_TRY(const auto checkpoint, MakeGgufCheckpoint(Borrow(file)));
  return EstimateMemory(*checkpoint, dtype, kv_tokens, kv_type);
}

}  // namespace tare::model
