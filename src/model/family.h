// A family: the models that share one architecture. It names its parts; the parts do the work.
//
// Adding one means a file family_NAME.cc with a Family and a line in families.cc
// (docs/MODELS.md).
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/file_names.h"
#include "model/model_config.h"

namespace tare::model {

class AttentionBlock;
class FeedForwardBlock;
class GgufFile;
class JsonKeys;
class WeightLoader;

// Which elements of a head are rotated together.
enum class RotaryPairs {
  kHalves,      // i and i + dims/2
  kNeighbours,  // 2i and 2i + 1
};

struct Family {
  const char* name;                                 // in our words, ModelConfig::family
  const char* gguf_architecture;                    // general.architecture; null: none
  std::span<const char* const> hugging_face_types;  // model_type of config.json
  RotaryPairs gguf_pairs = RotaryPairs::kHalves;
  const FileNames* names = &kDecoderNames;  // in Hugging Face checkpoints
  bool encoder = false;                     // computed by encoder.h: the two parts below are null
  // Sets what the common reading cannot know, and refuses variants that are something else.
  Status (*adjust_gguf)(const GgufFile& file, ModelConfig& config) = nullptr;
  Status (*adjust_json)(const JsonKeys& keys, ModelConfig& config) = nullptr;
  Status (*adjust)(ModelConfig& config) = nullptr;

  Result<std::unique_ptr<AttentionBlock>> (*attention)(WeightLoader& weights,
                                                       const ModelConfig& config,
                                                       int layer) = nullptr;
  Result<std::unique_ptr<FeedForwardBlock>> (*feed_forward)(WeightLoader& weights,
                                                            const ModelConfig& config,
                                                            int layer) = nullptr;
};

std::span<const Family* const> Families();
// The family of a GGUF architecture or a config.json model_type; refuses others by name.
Result<const Family*> FamilyOfGguf(std::string_view architecture);
Result<const Family*> FamilyOfHuggingFace(std::string_view model_type);

}  // namespace tare::model
