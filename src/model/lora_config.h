// The adapter_config.json of a LoRA adapter (Hu et al. 2021, arXiv 2106.09685) in PEFT's format.
//
// Whatever changes the computation in a way not done here is refused by name, and so is any key not
// known here that is set to something: PEFT gets new variants with every release, and computing one
// as if it were plain LoRA would be wrong without a word.
//
// Plain values; thread safety: none needed. Source: huggingface/peft, LoraConfig (0.21).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tare::model {

struct LoraConfig {
  int rank = 8;
  double alpha = 8.0;
  bool rank_stabilised = false;  // scale by alpha / sqrt(rank) (arXiv 2312.03732)
  // Exceptions by the end of a module's name, "layers.1.self_attn.q_proj"; the first one that fits
  // counts.
  std::vector<std::pair<std::string, int>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> targets;  // ends of modules' names; empty: given as a pattern

  // Of the module of that full name, "model.layers.1.self_attn.q_proj".
  int RankOf(std::string_view module) const;
  double ScaleOf(std::string_view module) const;
};

// `source` stands for the file in messages.
Result<LoraConfig> ParseLoraConfig(std::string_view text, const std::string& source);

// Whether `module` is `end` or ends in "." and `end`.
bool EndsInModule(std::string_view module, std::string_view end);

}  // namespace tare::model
