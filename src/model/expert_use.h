// Which experts a model's tokens went to since it was loaded: what tells whether a router spreads
// its load, and how much of the expert weights a step has to read.
//
// Thread safety: written by the thread that computes; copy it between steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tare::model {

struct ExpertUse {
  int first_layer = 0;                // layers before it have no experts
  int layers = 0;                     // that have experts
  int experts = 0;                    // of each
  std::uint64_t weight_bytes = 0;     // of all of them, as computed with
  std::vector<std::uint64_t> tokens;  // [layers, experts]
  // Summed over steps and layers: experts whose weights were read, and experts there are.
  std::uint64_t touched = 0;
  std::uint64_t present = 0;
  // The same of the last step.
  std::uint64_t step_touched = 0;
  std::uint64_t step_present = 0;

  std::span<const std::uint64_t> layer(int index) const {
    return std::span(tokens).subspan(
        static_cast<std::size_t>(index) * static_cast<std::size_t>(experts),
        static_cast<std::size_t>(experts));
  }
};

// How evenly `tokens` are spread over the experts of one layer.
struct ExpertBalance {
  double imbalance = 1.0;  // most loaded expert over the mean: 1 is even
  double entropy = 1.0;    // of the shares, over that of even shares: 1 is even, 0 is one expert
};
ExpertBalance BalanceOf(std::span<const std::uint64_t> tokens);

}  // namespace tare::model
