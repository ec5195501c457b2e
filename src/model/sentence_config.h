// How a Hugging Face folder says its encoder makes one vector of a text's tokens: the files the
// sentence-transformers library writes beside the model (modules.json, 1_Pooling/config.json,
// sentence_bert_config.json).
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace tare::model {

enum class Pooling {
  kMean,  // of all tokens
  kCls,   // the first token
};
const char* ToString(Pooling pooling);  // "mean"

struct SentenceConfig {
  Pooling pooling = Pooling::kMean;
  bool normalise = true;        // to length 1
  int max_length = 0;           // tokens the authors advise to give it, [CLS] and [SEP] included
  std::vector<int> dimensions;  // shorter vectors it was trained for (matryoshka); empty: not told
};

// Folders without modules.json are read as mean pooling with normalising, after a warning. Poolings
// and modules that cannot be computed are refused by name.
Result<SentenceConfig> ReadSentenceConfig(const std::filesystem::path& folder,
                                          const ModelConfig& config);

}  // namespace tare::model
