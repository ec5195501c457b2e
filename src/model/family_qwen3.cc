// Qwen 3, dense: as llama, with a norm over each head of q and k before rotation.
#include "model/blocks.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"qwen3"};

Status Adjust(ModelConfig& config) {
  config.head_norms = true;
  return {};
}

}  // namespace

const Family kQwen3 = {
    .name = "qwen3",
    .gguf_architecture = "qwen3",
    .hugging_face_types = kTypes,
    .adjust = Adjust,
    .attention = LoadGroupedQueryAttention,
    .feed_forward = LoadGatedMlp,
};

}  // namespace tare::model
