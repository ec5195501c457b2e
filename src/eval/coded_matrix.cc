#include "eval/coded_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/stored_blocks.h"

namespace tare::eval {
namespace {

using kernels::StoredType;

// Rows worth waking another thread for.
constexpr std::size_t kRowsPerShare = 8;
// How far ranges are narrowed, as AutoAWQ does: to one half in steps of a twentieth.
constexpr int kClipSteps = 10;
constexpr float kClipStep = 0.05f;

struct Grid {
  float scale = 0;
  float zero = 0;
  float largest = 15;

  float Code(float value) const {
    if (!(scale > 0)) return zero;
    return std::clamp(std::rint(value / scale) + zero, 0.0f, largest);
  }
  float Round(float value) const { return scale * (Code(value) - zero); }
};

struct Range {
  float low = 0;  // never above 0, so that 0 has a code
  float high = 0;
};

Range RangeOf(const float* values, std::int64_t count) {
  Range range;
  for (std::int64_t i = 0; i < count; ++i) {
    range.low = std::min(range.low, values[i]);
    range.high = std::max(range.high, values[i]);
  }
  return range;
}

float AsHalf(float value) { return kernels::F16ToFloat(kernels::FloatToF16(value)); }

Grid GridOf(const Range& range, const RoundingRule& rule) {
  Grid grid;
  grid.largest = static_cast<float>((1 << rule.bits) - 1);
  if (rule.zero_point) {
    grid.scale = AsHalf((range.high - range.low) / grid.largest);
    grid.zero =
        grid.scale > 0 ? std::clamp(std::rint(-range.low / grid.scale), 0.0f, grid.largest) : 0.0f;
  } else {
    const float middle = static_cast<float>(1 << (rule.bits - 1));
    grid.scale = AsHalf(std::max(-range.low, range.high) / (middle - 1));
    grid.zero = middle;
  }
  return grid;
}

// The narrowed grid of least weighted error.
Grid BestGrid(const float* values, const float* importance, std::int64_t count,
              const RoundingRule& rule) {
  const Range range = RangeOf(values, count);
  Grid best;
  float best_error = std::numeric_limits<float>::max();
  for (int step = 0; step < kClipSteps; ++step) {
    const float keep = 1.0f - kClipStep * static_cast<float>(step);
    const Grid grid = GridOf({range.low * keep, range.high * keep}, rule);
    float error = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float miss = grid.Round(values[i]) - values[i];
      error += importance[i] * miss * miss;
    }
    if (error < best_error) {
      best_error = error;
      best = grid;
    }
  }
  return best;
}

}  // namespace

StoredType CodedMatrix::stored_type() const {
  if (rule.bits == 8) return StoredType::kCodes8;
  return rule.zero_point ? StoredType::kCodes4Zero : StoredType::kCodes4;
}

std::vector<std::byte> CodedMatrix::Blocks() const {
  TARE_CHECK(cols % kernels::kStoredGroup == 0);
  const auto block_bytes = static_cast<std::size_t>(kernels::BlockBytes(stored_type()));
  std::vector<std::byte> out(static_cast<std::size_t>(rows * cols / kernels::kStoredGroup) *
                             block_bytes);
  std::byte* to = out.data();
  const auto put = [&](const auto& block) {
    std::memcpy(to, &block, sizeof block);
    to += sizeof block;
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < cols; k += kernels::kStoredGroup) {
      const auto at = static_cast<std::size_t>(row * groups() + k / rule.group);
      const std::uint8_t* from = codes.data() + row * cols + k;
      if (rule.bits == 8) {
        kernels::BlockCodes8 block{scales[at], {}};
        for (int i = 0; i < kernels::kStoredGroup; ++i) {
          block.codes[i] = static_cast<std::int8_t>(int{from[i]} - int{zeros[at]});
        }
        put(block);
      } else if (rule.zero_point) {
        kernels::BlockCodes4Zero block{scales[at], zeros[at], {}};
        kernels::WriteNibbles(from, block);
        put(block);
      } else {
        kernels::BlockCodes4 block{scales[at], {}};
        kernels::WriteNibbles(from, block);
        put(block);
      }
    }
  }
  return out;
}

void CodedMatrix::Append(const CodedMatrix& other) {
  TARE_CHECK(other.cols == cols && other.rule.group == rule.group);
  rows += other.rows;
  codes.insert(codes.end(), other.codes.begin(), other.codes.end());
  scales.insert(scales.end(), other.scales.begin(), other.scales.end());
  zeros.insert(zeros.end(), other.zeros.begin(), other.zeros.end());
}

CodedMatrix RoundMatrix(std::span<const float> weights, std::int64_t rows, std::int64_t cols,
                        const RoundingRule& rule, std::span<const float> importance,
                        ThreadPool& pool) {
  TARE_CHECK(weights.size() == static_cast<std::size_t>(rows * cols));
  TARE_CHECK(importance.empty() || importance.size() == static_cast<std::size_t>(cols));
  TARE_CHECK(rule.bits == 4 || !rule.zero_point);
  CodedMatrix out{rule, rows, cols, {}, {}, {}};
  const std::int64_t groups = out.groups();
  out.codes.resize(weights.size());
  out.scales.resize(static_cast<std::size_t>(rows * groups));
  out.zeros.resize(out.scales.size());
  pool.ParallelFor(
      static_cast<std::size_t>(rows), kRowsPerShare, [&](std::size_t begin, std::size_t end) {
        for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
             ++row) {
          for (std::int64_t g = 0; g < groups; ++g) {
            const std::int64_t first = g * rule.group;
            const std::int64_t count = std::min(rule.group, cols - first);
            const float* values = weights.data() + row * cols + first;
            const Grid grid = importance.empty()
                                  ? GridOf(RangeOf(values, count), rule)
                                  : BestGrid(values, importance.data() + first, count, rule);
            out.scales[static_cast<std::size_t>(row * groups + g)] = grid.scale;
            out.zeros[static_cast<std::size_t>(row * groups + g)] =
                static_cast<std::uint8_t>(grid.zero);
            std::uint8_t* codes = out.codes.data() + row * cols + first;
            for (std::int64_t i = 0; i < count; ++i) {
              codes[i] = static_cast<std::uint8_t>(grid.Code(values[i]));
            }
          }
        }
      });
  return out;
}

void ReplaceByScaledError(std::span<float> weights, std::int64_t rows, std::int64_t cols,
                          const RoundingRule& rule, std::span<const float> scale,
                          ThreadPool& pool) {
  TARE_CHECK(weights.size() == static_cast<std::size_t>(rows * cols));
  TARE_CHECK(scale.size() == static_cast<std::size_t>(cols));
  pool.ParallelFor(
      static_cast<std::size_t>(rows), kRowsPerShare, [&](std::size_t begin, std::size_t end) {
        std::vector<float> scaled(static_cast<std::size_t>(rule.group));
        for (auto row = static_cast<std::int64_t>(begin); row < static_cast<std::int64_t>(end);
             ++row) {
          for (std::int64_t first = 0; first < cols; first += rule.group) {
            const std::int64_t count = std::min(rule.group, cols - first);
            float* values = weights.data() + row * cols + first;
            const float* by = scale.data() + first;
            for (std::int64_t i = 0; i < count; ++i) {
              scaled[static_cast<std::size_t>(i)] = values[i] * by[i];
            }
            const Grid grid = GridOf(RangeOf(scaled.data(), count), rule);
            for (std::int64_t i = 0; i < count; ++i) {
              values[i] = grid.Round(scaled[static_cast<std::size_t>(i)]) / by[i] - values[i];
            }
          }
        }
      });
}

}  // namespace tare::eval
