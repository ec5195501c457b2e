// What a family's tensors are called in Hugging Face checkpoints, and the common names (those of
// GGUF, checkpoint.h) they answer to here.
//
// Plain functions; thread safety: none needed.
#pragma once

#include <string>
#include <string_view>

#include "model/model_config.h"

namespace tare::model {

struct FileNames {
  // "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"; a name that has no common
  // one stays as it is.
  std::string (*to_common)(std::string_view name);
  // The reverse.
  std::string (*to_hugging_face)(std::string_view common_name);
  // Tensors in files that make no difference to what is computed.
  bool (*no_use_for)(std::string_view name, const ModelConfig& config);
};

extern const FileNames kDecoderNames;  // llama's, and all that followed it
extern const FileNames kBertNames;

}  // namespace tare::model
