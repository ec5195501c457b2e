// A weight matrix rounded to a few bits: codes, and a scale and zero point for each run of inputs.
//
// value = scale * (code - zero), with scales that are halves and codes of 0 .. 2^bits - 1, so that
// every checkpoint format and kernel layout for such weights holds the same values.
//
// Plain rounding spreads the codes over a group's range. With importance, ranges are narrowed step
// by step and the one of least error is kept, each input's squared error weighing as much as its
// squared activation (the clipping of AWQ, Lin et al. 2024, section 3, with the error measured at
// the weights). Thread safety: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/tensor_view.h"

namespace tare::eval {

struct RoundingRule {
  int bits = 4;  // 4 or 8
  std::int64_t group =
      128;  // inputs that share a scale: a multiple of 32; a row's last may have less
  bool zero_point = true;  // 4 bits only; without: symmetric around the middle code
};

struct CodedMatrix {
  RoundingRule rule;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;  // [rows, cols]
  std::vector<float> scales;        // [rows, groups]
  std::vector<std::uint8_t> zeros;  // [rows, groups]

  std::int64_t groups() const { return (cols + rule.group - 1) / rule.group; }
  kernels::StoredType stored_type() const;
  // As blocks of stored_type(); cols must be a multiple of 32.
  std::vector<std::byte> Blocks() const;
  // Puts the rows of another matrix of this rule and width behind its own.
  void Append(const CodedMatrix& other);
};

// `weights`: [rows, cols]. `importance`: mean squared activation of each input, or empty.
CodedMatrix RoundMatrix(std::span<const float> weights, std::int64_t rows, std::int64_t cols,
                        const RoundingRule& rule, std::span<const float> importance,
                        ThreadPool& pool);

// weights[r, c] becomes Q(weights[r, c] * scale[c]) / scale[c] - weights[r, c] by plain rounding:
// the error that rounding after scaling leaves.
void ReplaceByScaledError(std::span<float> weights, std::int64_t rows, std::int64_t cols,
                          const RoundingRule& rule, std::span<const float> scale, ThreadPool& pool);

}  // namespace tare::eval
