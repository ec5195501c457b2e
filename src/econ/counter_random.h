// Random numbers addressed by counter: number i of stream s under a seed is a pure function, so a
// simulation gives the same result on any number of threads and in any order.
//
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011); counter_random_test.cc holds the authors' known answers.
#pragma once

#include <array>
#include <cstdint>

namespace tare::econ {

inline std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Two uniforms in (0, 1), never 0 or 1: the pair `pair` of draw `draw`.
inline std::array<double, 2> UniformPair(std::uint64_t seed, std::uint64_t draw,
                                         std::uint32_t pair) {
  const auto words =
      Philox({static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), pair, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  auto unit = [](std::uint32_t high, std::uint32_t low) {
    const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;  // 53 bits
    return (static_cast<double>(bits) + 0.5) * 0x1p-53;
  };
  return {unit(words[0], words[1]), unit(words[2], words[3])};
}

}  // namespace tare::econ
