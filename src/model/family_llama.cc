// Llama 2, 3 and 3.x, and the many models of the same shape (SmolLM2, TinyLlama, ...): grouped
// query attention without biases, gated feed-forward. GGUF files hold q and k for neighbouring
// pairs; Llama 3.x's scaling comes as a tensor of divisors there, as rope_scaling in config.json.
#include "model/blocks.h"
#include "model/families.h"
#include "model/gguf.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"llama"};

Status RefuseExperts(const GgufFile& file, ModelConfig&) {
  TARE_TRY(const auto experts, file.IntOr("llama.expert_count", 0));
  if (experts == 0) return {};
  return Fail(
      ErrorKind::kUnsupported,
      "{}: a llama with {} experts (Mixtral) is not supported; docs/MODELS.md lists what is",
      file.name(), experts);
}

}  // namespace

const Family kLlama = {
    .name = "llama",
    .gguf_architecture = "llama",
    .hugging_face_types = kTypes,
    .gguf_pairs = RotaryPairs::kNeighbours,
    .adjust_gguf = RefuseExperts,
    .attention = LoadGroupedQueryAttention,
    .feed_forward = LoadGatedMlp,
};

}  // namespace tare::model
