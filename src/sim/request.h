// A request of a simulation: when it comes, how long it is, and what of its prompt others share.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "engine/generate.h"

namespace tare::sim {

// A piece of a prompt with a name: pieces of equal name and place are equal text.
struct PromptBlock {
  std::uint64_t name = 0;
  int tokens = 0;
};

struct SimRequest {
  std::uint64_t index = 0;
  Nanos intended{};  // since the start of the run
  int input_tokens = 1;
  int output_tokens = 1;  // the answer ends after exactly as many
  engine::Tier tier = engine::Tier::kInteractive;
  // The prompt's beginning; what they leave of input_tokens is nobody else's. Empty: nothing
  // shared.
  std::vector<PromptBlock> blocks;
};

// The prompt as tokens: equal blocks give equal tokens, different ones differ in the first two.
std::vector<TokenId> PromptTokens(const SimRequest& request);

}  // namespace tare::sim
