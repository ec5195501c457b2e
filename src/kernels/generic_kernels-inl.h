// The kernels in plain C++, written as loops over 16 lanes that compilers turn into vectors. A
// kernels_*.cc defines TARE_KERNELS_NAMESPACE and includes this file once; its compile flags decide
// the instructions. Built for the baseline this is the reference the other sets are tested against.
//
// Only forced-inline or static functions may be used here: see half.h.

#include <cstdint>

#include "kernels/activation_codes-inl.h"
#include "kernels/kernel_table.h"

namespace tare::kernels::TARE_KERNELS_NAMESPACE {
namespace {

constexpr int kLanes = kPanelCols;

TARE_KERNEL_INLINE float MultiplyAdd(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

#ifndef TARE_KERNELS_WITHOUT_MATMUL
TARE_KERNEL_INLINE const std::uint8_t* Cell(const WeightCells& w, std::int64_t panel,
                                            std::int64_t cell) {
  return w.data + panel * w.panel_bytes + cell * w.cell_bytes;
}

TARE_KERNEL_INLINE void Store(const float* acc, const WeightCells& w, std::int64_t panel,
                              std::int64_t row, const Output& out) {
  const std::int64_t first = panel * kLanes;
  const std::int64_t left = w.rows - first;
  const std::int64_t count = left < kLanes ? left : kLanes;
  float* y = out.y + row * out.stride + first;
  for (std::int64_t j = 0; j < count; ++j) y[j] = acc[j];
}

template <int kRows>
inline void F32Rows(const WeightCells& w, const ActivationCells& x, const Output& out,
                    std::int64_t panel, std::int64_t row) {
  float acc[kRows][kLanes] = {};
  const float* line = reinterpret_cast<const float*>(Cell(w, panel, 0));
  const float* input = x.f32 + row * x.cols;
  for (std::int64_t k = 0; k < x.cols; ++k, line += kLanes) {
    for (int r = 0; r < kRows; ++r) {
      const float value = input[r * x.cols + k];
      for (int j = 0; j < kLanes; ++j) acc[r][j] = MultiplyAdd(value, line[j], acc[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) Store(acc[r], w, panel, row + r, out);
}

void MatMulF32(const WeightCells& w, const ActivationCells& x, const Output& out,
               std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    for (; row + 4 <= x.rows; row += 4) F32Rows<4>(w, x, out, panel, row);
    for (; row < x.rows; ++row) F32Rows<1>(w, x, out, panel, row);
  }
}

template <int kRows>
inline void Bf16Rows(const WeightCells& w, const ActivationCells& x, const Output& out,
                     std::int64_t panel, std::int64_t row) {
  float acc[kRows][kLanes] = {};
  const std::uint16_t* input =
      x.bf16 + (row / kBlockRows * x.cells * kBlockRows + row % kBlockRows) * kBf16CellDepth;
  for (std::int64_t c = 0; c < w.cells; ++c, input += kBlockRows * kBf16CellDepth) {
    const auto* line = reinterpret_cast<const std::uint32_t*>(Cell(w, panel, c));
    for (int i = 0; i < kBf16CellDepth; i += 2, line += kLanes) {
      for (int r = 0; r < kRows; ++r) {
        const float even = Bf16ToFloat(input[r * kBf16CellDepth + i]);
        const float odd = Bf16ToFloat(input[r * kBf16CellDepth + i + 1]);
        for (int j = 0; j < kLanes; ++j) {
          acc[r][j] = MultiplyAdd(even, BitsToFloat(line[j] << 16), acc[r][j]);
          acc[r][j] = MultiplyAdd(odd, BitsToFloat(line[j] & 0xffff0000u), acc[r][j]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) Store(acc[r], w, panel, row + r, out);
}

void MatMulBf16(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    std::int64_t row = 0;
    for (; row + 4 <= x.rows; row += 4) Bf16Rows<4>(w, x, out, panel, row);
    for (; row < x.rows; ++row) Bf16Rows<1>(w, x, out, panel, row);
  }
}

#ifndef TARE_KERNELS_WITHOUT_INTEGER_MATMUL
// An activation's code from its two bytes.
TARE_KERNEL_INLINE std::int32_t JoinCode(std::int8_t high, std::int8_t low) {
  return high * (1 << kLowBits) + low;
}

// Adds the products of one line (4 inputs of 16 features) to the dot products.
template <typename Code>
TARE_KERNEL_INLINE void AddLine(const Code* line, const std::int8_t* high, std::int32_t* dot) {
  const std::int8_t* low = high + kBlockRows * kLineBytes;
  for (int j = 0; j < kLanes; ++j) {
    std::int32_t sum = 0;
    for (int b = 0; b < 4; ++b) sum += line[j * 4 + b] * JoinCode(high[b], low[b]);
    dot[j] += sum;
  }
}

template <WeightType kType>
TARE_KERNEL_INLINE void Dots(const std::uint8_t* cell, const std::int8_t* codes,
                             std::int32_t (*dot)[kLanes]) {
  constexpr int kLinesPerHalf = 8;
  for (int i = 0; i < kLinesPerHalf; ++i, cell += kLineBytes, codes += 4) {
    if constexpr (kType == WeightType::kInt8) {
      const auto* line = reinterpret_cast<const std::int8_t*>(cell);
      AddLine(line, codes, dot[0]);
      AddLine(line + kLinesPerHalf * kLineBytes, codes + kGroup, dot[1]);
    } else {
      std::uint8_t first[kLineBytes];
      std::uint8_t second[kLineBytes];
      for (int b = 0; b < kLineBytes; ++b) {
        first[b] = cell[b] & 0x0f;
        second[b] = static_cast<std::uint8_t>(cell[b] >> 4);
      }
      AddLine(first, codes, dot[0]);
      AddLine(second, codes + kGroup, dot[1]);
    }
  }
}

// A scale or minimum in units. Packed bytes are not checked: whatever they hold stays small enough
// for sums of 64 bits.
TARE_KERNEL_INLINE std::int64_t InUnits(std::uint16_t half, float inverse) {
  constexpr std::int32_t kMost = 1 << 16;
  const std::int32_t units = Nearest(F16ToFloat(half) * inverse);
  return units > kMost ? kMost : units < -kMost ? -kMost : units;
}

template <WeightType kType, bool kMinimum>
inline void IntegerPanel(const WeightCells& w, const ActivationCells& x, const Output& out,
                         std::int64_t panel) {
  constexpr int kCodes = kType == WeightType::kInt8 ? kInt8Codes : kInt4Codes;
  constexpr bool kHasOffset = kType == WeightType::kInt4 && !kMinimum;
  const auto* units = reinterpret_cast<const float*>(Cell(w, panel, w.cells));
  float inverse[kLanes];
  for (int j = 0; j < kLanes; ++j) inverse[j] = InverseUnit(units[j]);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const int slot = static_cast<int>(row % kBlockRows);
    std::int64_t totals[kLanes] = {};
    for (std::int64_t c = 0; c < w.cells; ++c) {
      const std::uint8_t* cell = Cell(w, panel, c);
      const std::int64_t block = row / kBlockRows * x.cells + c;
      std::int32_t dot[2][kLanes] = {};
      Dots<kType>(cell, x.codes + (block * 2 * kBlockRows + slot) * kLineBytes, dot);
      const auto* scales = reinterpret_cast<const std::uint16_t*>(cell + kCodes);
      for (int half = 0; half < 2; ++half) {
        const std::int32_t minus_sum = x.sums[(block * 2 + half) * kBlockRows + slot];
        for (int j = 0; j < kLanes; ++j) {
          const std::int64_t d = dot[half][j] + (kHasOffset ? 8 * minus_sum : 0);
          totals[j] += InUnits(scales[half * kLanes + j], inverse[j]) * d;
          if constexpr (kMinimum) {
            totals[j] -= InUnits(scales[(2 + half) * kLanes + j], inverse[j]) * minus_sum;
          }
        }
      }
    }
    const float step = x.steps[row / kBlockRows * kBlockRows + slot];
    float y[kLanes];
    for (int j = 0; j < kLanes; ++j) y[j] = static_cast<float>(totals[j]) * (units[j] * step);
    Store(y, w, panel, row, out);
  }
}

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    IntegerPanel<WeightType::kInt8, false>(w, x, out, panel);
  }
}

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel) {
    if (w.with_minimum) {
      IntegerPanel<WeightType::kInt4, true>(w, x, out, panel);
    } else {
      IntegerPanel<WeightType::kInt4, false>(w, x, out, panel);
    }
  }
}

#endif  // TARE_KERNELS_WITHOUT_INTEGER_MATMUL
#endif  // TARE_KERNELS_WITHOUT_MATMUL

#ifndef TARE_KERNELS_WITHOUT_QUANTIZE_ROW
void QuantizeRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                 const CodeRows& to) {
  std::uint32_t largest = 0;
  for (std::int64_t k = 0; k < cols; ++k) {
    const std::uint32_t magnitude = FloatToBits(x[k]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const RowStep steps = StepFor(largest);
  to.steps[slot] = steps.step;
  for (std::int64_t half = 0; half < 2 * cells; ++half) {
    std::int8_t* high = to.codes + (half / 2 * 2 * kBlockRows + slot) * kLineBytes;
    high += half % 2 * kGroup;
    std::int8_t* low = high + kBlockRows * kLineBytes;
    std::int32_t sum = 0;
    for (int i = 0; i < kGroup; ++i) {
      const std::int64_t k = half * kGroup + i;
      std::int32_t code = k < cols && steps.inverse > 0.0f ? Nearest(x[k] * steps.inverse) : 0;
      const std::int32_t upper = (code + 128) >> kLowBits;
      if (code - upper * 256 == -128) ++code;
      high[i] = static_cast<std::int8_t>(upper);
      low[i] = static_cast<std::int8_t>(code - upper * 256);
      sum += code;
    }
    StoreSum(sum, half, slot, to);
  }
}
#endif  // TARE_KERNELS_WITHOUT_QUANTIZE_ROW

void RoundRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
              std::uint16_t* bf16) {
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    std::uint16_t* to = bf16 + (cell * kBlockRows + slot) * kBf16CellDepth;
    for (int i = 0; i < kBf16CellDepth; ++i) {
      const std::int64_t k = cell * kBf16CellDepth + i;
      to[i] = k < cols ? FloatToBf16(x[k]) : std::uint16_t{0};
    }
  }
}

// e^x for x <= 0, within 2 ulp; 0 below the smallest normal result. Range reduction by multiples of
// ln 2 in two parts, then the Taylor polynomial of degree 7 on [-ln2/2, ln2/2].
TARE_KERNEL_INLINE float ExpOfNegative(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = MultiplyAdd(clamped, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  float r = MultiplyAdd(n, -0.693359375f, clamped);
  r = MultiplyAdd(n, 2.12194440e-4f, r);
  float p = 1.0f / 5040.0f;
  p = MultiplyAdd(p, r, 1.0f / 720.0f);
  p = MultiplyAdd(p, r, 1.0f / 120.0f);
  p = MultiplyAdd(p, r, 1.0f / 24.0f);
  p = MultiplyAdd(p, r, 1.0f / 6.0f);
  p = MultiplyAdd(p, r, 0.5f);
  p = MultiplyAdd(p, r, 1.0f);
  p = MultiplyAdd(p, r, 1.0f);
  const float power = BitsToFloat((FloatToBits(shifted) + 127u) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

TARE_KERNEL_INLINE float Bf16Low(std::uint32_t pair) { return BitsToFloat(pair << 16); }
TARE_KERNEL_INLINE float Bf16High(std::uint32_t pair) { return BitsToFloat(pair & 0xffff0000u); }

// scores[t] = q . K[t] for the 16 tokens of a page.
TARE_KERNEL_INLINE void PageScores(const KvLayout& layout, const std::uint8_t* k, const float* q,
                                   float* scores) {
  float acc[kTokensPerPage] = {};
  if (layout.type == KvType::kF32) {
    const auto* line = reinterpret_cast<const float*>(k);
    for (int d = 0; d < layout.head_dim; ++d, line += kTokensPerPage) {
      for (int t = 0; t < kTokensPerPage; ++t) acc[t] = MultiplyAdd(q[d], line[t], acc[t]);
    }
  } else if (layout.type == KvType::kBf16) {
    const auto* line = reinterpret_cast<const std::uint32_t*>(k);
    for (int d = 0; d < layout.head_dim; d += 2, line += kTokensPerPage) {
      const float odd = d + 1 < layout.head_dim ? q[d + 1] : 0.0f;
      for (int t = 0; t < kTokensPerPage; ++t) {
        acc[t] = MultiplyAdd(q[d], Bf16Low(line[t]), acc[t]);
        acc[t] = MultiplyAdd(odd, Bf16High(line[t]), acc[t]);
      }
    }
  } else {
    const auto* line = reinterpret_cast<const std::int8_t*>(k);
    for (int d = 0; d < layout.head_dim; d += 2, line += 2 * kTokensPerPage) {
      const float odd = d + 1 < layout.head_dim ? q[d + 1] : 0.0f;
      for (int t = 0; t < kTokensPerPage; ++t) {
        acc[t] = MultiplyAdd(q[d], static_cast<float>(line[2 * t]), acc[t]);
        acc[t] = MultiplyAdd(odd, static_cast<float>(line[2 * t + 1]), acc[t]);
      }
    }
    const auto* scales = reinterpret_cast<const float*>(k + layout.part_bytes);
    for (int t = 0; t < kTokensPerPage; ++t) acc[t] *= scales[t];
  }
  for (int t = 0; t < kTokensPerPage; ++t) scores[t] = acc[t];
}

// The same from a K part, whose leading dimensions are the values: a sum over lanes a dimension.
TARE_KERNEL_INLINE void AddPageValuesOfKeys(const KvLayout& layout, const std::uint8_t* k,
                                            const float* p, float* out) {
  float weights[kTokensPerPage];
  const auto* scales = reinterpret_cast<const float*>(k + layout.part_bytes);
  for (int t = 0; t < kTokensPerPage; ++t) {
    weights[t] = layout.type == KvType::kInt8 ? p[t] * scales[t] : p[t];
  }
  const auto add = [&](int d, auto value) __attribute__((always_inline)) {
    float lanes[kTokensPerPage];
    for (int t = 0; t < kTokensPerPage; ++t) lanes[t] = weights[t] * value(t);
    for (int width = kTokensPerPage / 2; width > 0; width /= 2) {
      for (int t = 0; t < width; ++t) lanes[t] += lanes[t + width];
    }
    out[d] += lanes[0];
  };
  for (int d = 0; d < layout.value_dim; ++d) {
    if (layout.type == KvType::kF32) {
      const auto* line = reinterpret_cast<const float*>(k) + d * kTokensPerPage;
      add(d, [&](int t) { return line[t]; });
    } else if (layout.type == KvType::kBf16) {
      const auto* line = reinterpret_cast<const std::uint16_t*>(k) + d / 2 * 2 * kTokensPerPage;
      add(d, [&](int t) { return Bf16ToFloat(line[2 * t + d % 2]); });
    } else {
      const auto* line = reinterpret_cast<const std::int8_t*>(k) + d / 2 * 2 * kTokensPerPage;
      add(d, [&](int t) { return static_cast<float>(line[2 * t + d % 2]); });
    }
  }
}

// out[d] += sum over t of p[t] * V[t][d].
TARE_KERNEL_INLINE void AddPageValues(const KvLayout& layout, const std::uint8_t* v, const float* p,
                                      float* out) {
  const int dims = layout.head_dim;
  if (layout.type == KvType::kF32) {
    const auto* line = reinterpret_cast<const float*>(v);
    for (int t = 0; t < kTokensPerPage; ++t, line += layout.padded_dim) {
      for (int d = 0; d < dims; ++d) out[d] = MultiplyAdd(p[t], line[d], out[d]);
    }
  } else if (layout.type == KvType::kBf16) {
    const auto* line = reinterpret_cast<const std::uint32_t*>(v);
    for (int t = 0; t < kTokensPerPage; t += 2, line += layout.padded_dim) {
      for (int d = 0; d < dims; ++d) {
        out[d] = MultiplyAdd(p[t], Bf16Low(line[d]), out[d]);
        out[d] = MultiplyAdd(p[t + 1], Bf16High(line[d]), out[d]);
      }
    }
  } else {
    const auto* line = reinterpret_cast<const std::int8_t*>(v);
    const auto* scales = reinterpret_cast<const float*>(v + layout.part_bytes);
    for (int t = 0; t < kTokensPerPage; t += 2, line += 2 * layout.padded_dim) {
      const float even = p[t] * scales[t];
      const float odd = p[t + 1] * scales[t + 1];
      for (int d = 0; d < dims; ++d) {
        out[d] = MultiplyAdd(even, static_cast<float>(line[2 * d]), out[d]);
        out[d] = MultiplyAdd(odd, static_cast<float>(line[2 * d + 1]), out[d]);
      }
    }
  }
}

// Online softmax (Milakov and Gimelshein 2018) page by page in order.
void AttendSegment(const AttentionTile& tile, int segment, float* state) {
  const KvLayout& layout = *tile.kv.layout;
  const int dims = layout.padded_value_dim;
  for (int row = 0; row < tile.rows; ++row) {
    float largest = -__builtin_inff();
    float total = 0.0f;
    float* out = state + 2 * kTileRows + row * dims;
    for (int d = 0; d < dims; ++d) out[d] = 0.0f;
    const int segment_end = (segment + 1) * kSegmentTokens;
    const int past = tile.tokens[row] < segment_end ? tile.tokens[row] : segment_end;
    for (int first = segment * kSegmentTokens; first < past; first += kTokensPerPage) {
      const std::uint8_t* k =
          tile.kv.base + ToInt(tile.pages[first / kTokensPerPage]) * layout.page_bytes;
      const int count = past - first < kTokensPerPage ? past - first : kTokensPerPage;
      float scores[kTokensPerPage];
      PageScores(layout, k, tile.q[row], scores);
      float page_largest = largest;
      for (int t = 0; t < count; ++t) {
        scores[t] *= tile.scale;
        page_largest = scores[t] > page_largest ? scores[t] : page_largest;
      }
      const float keep = largest == page_largest ? 1.0f : ExpOfNegative(largest - page_largest);
      largest = page_largest;
      float page_total = 0.0f;
      for (int t = 0; t < kTokensPerPage; ++t) {
        scores[t] = t < count ? ExpOfNegative(scores[t] - largest) : 0.0f;
        page_total += scores[t];
      }
      total = MultiplyAdd(total, keep, page_total);
      if (keep != 1.0f) {
        for (int d = 0; d < dims; ++d) out[d] *= keep;
      }
      if (layout.values_in_keys) {
        AddPageValuesOfKeys(layout, k, scores, out);
      } else {
        AddPageValues(layout, k + layout.part_bytes + layout.scale_bytes, scores, out);
      }
    }
    state[row] = largest;
    state[kTileRows + row] = total;
  }
}

// A row that sees nothing of the later segment has its maximum at -infinity and stays as it is.
void MergeStates(const AttentionTile& tile, float* into, const float* later) {
  const int dims = tile.kv.layout->padded_value_dim;
  for (int row = 0; row < tile.rows; ++row) {
    if (later[row] == -__builtin_inff()) continue;
    const float largest = into[row] > later[row] ? into[row] : later[row];
    const float keep = ExpOfNegative(into[row] - largest);
    const float add = ExpOfNegative(later[row] - largest);
    into[row] = largest;
    into[kTileRows + row] = into[kTileRows + row] * keep + later[kTileRows + row] * add;
    float* out = into + 2 * kTileRows + row * dims;
    const float* more = later + 2 * kTileRows + row * dims;
    for (int d = 0; d < dims; ++d) out[d] = out[d] * keep + more[d] * add;
  }
}

void FinishTile(const AttentionTile& tile, const float* state) {
  for (int row = 0; row < tile.rows; ++row) {
    const float inverse = 1.0f / state[kTileRows + row];
    const float* sums = state + 2 * kTileRows + row * tile.kv.layout->padded_value_dim;
    for (int d = 0; d < tile.kv.layout->value_dim; ++d) tile.out[row][d] = sums[d] * inverse;
  }
}

}  // namespace
}  // namespace tare::kernels::TARE_KERNELS_NAMESPACE

#include "kernels/encoder_rows-inl.h"
#include "kernels/generic_rows-inl.h"
