// Qwen 2 and 2.5, dense: as llama, with biases on q, k and v.
#include "model/blocks.h"
#include "model/families.h"

namespace tare::model {
namespace {

constexpr const char* kTypes[] = {"qwen2"};

Status Adjust(ModelConfig& config) {
  config.attention_bias = true;
  return {};
}

}  // namespace

const Family kQwen2 = {
    .name = "qwen2",
    .gguf_architecture = "qwen2",
    .hugging_face_types = kTypes,
    .adjust = Adjust,
    .attention = LoadGroupedQueryAttention,
    .feed_forward = LoadGatedMlp,
};

}  // namespace tare::model
