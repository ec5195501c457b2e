// INT8 and INT4 products of more than a few rows on AMX, from the bits that packed_layout.h
// prescribes.
//
// Weights become numbers of 16 bits, m * code + z, as two tiles of bytes: the high ones signed, the
// low ones not. With the two bytes of the activations that makes four tile products for 16 rows x
// 16 features x 64 inputs, whose sums, of high with high, of high with low and of low with low
// bytes, stay in three tiles for as many inputs as are at hand. Nothing leaves a tile for a group
// of 32: the vector instructions which that takes cost more than the products.
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

// Up to how many rows other kernels are as fast or faster. 1,024 x 2,048, one thread, family 6
// model 207, 2026-12-01, us, least of 300: INT8 with VNNI and here 67 and 97 for 2 rows, 104 and 98
// for 4, 159 and 111 for 8; INT4 with VNNI and in blocks 59 and 68 for 2, 98 and 71 for 3; INT4 in
// blocks and here 320 and 335 for 48, 425 and 423 for 64, 644 and 609 for 96.
constexpr std::int64_t kInt8VnniRows = 4;
constexpr std::int64_t kInt4VnniRows = 2;
constexpr std::int64_t kInt4BlockRows = 48;

// How the work of many rows is cut: the weights of a panel and chunk (16 KiB) stay in L1 for up to
// 256 rows, the rows' codes of a chunk (256 KiB) and the sums (384 KiB) in L2 for 128 features.
constexpr std::int64_t kCellsAtOnce = 8;
constexpr std::int64_t kBlocksAtOnce = 16;
constexpr std::int64_t kPanelsAtOnce = 8;

enum class Codes { kInt8, kInt4, kInt4Minimum };

// 64 inputs of a panel's weights as tiles.
struct Tiles {
  std::uint8_t high[kTileBytes];
  std::uint8_t low[kTileBytes];
};

// What leaves the three accumulators of a block of rows and a panel.
struct Sums {
  std::int32_t high[kSums];
  std::int32_t middle[kSums];
  std::int32_t low[kSums];
};

// Line `line` of the tiles from the even and the odd ones of its numbers.
TARE_KERNEL_INLINE void StoreLine(__m512i even, __m512i odd, int line, Tiles& to) {
  constexpr __mmask64 kOdd = 0xaaaaaaaaaaaaaaaau;
  _mm512_store_si512(to.high + line * kLineBytes,
                     _mm512_mask_mov_epi8(_mm512_srli_epi16(even, 8), kOdd, odd));
  _mm512_store_si512(to.low + line * kLineBytes,
                     _mm512_mask_mov_epi8(even, kOdd, _mm512_slli_epi16(odd, 8)));
}

template <Codes kCodes>
TARE_KERNEL_INLINE void UnpackCell(const std::uint8_t* cell, __m512 inverse, Tiles& to) {
  if constexpr (kCodes == Codes::kInt8) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i factor = Pairs(LoadInUnits(cell + kInt8Codes + half * 32, inverse));
#pragma GCC unroll 8
      for (int i = half * 8; i < half * 8 + 8; ++i) {
        const __m512i line = _mm512_load_si512(cell + i * kLineBytes);
        const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(line, 8), 8);
        const __m512i odd = _mm512_srai_epi16(line, 8);
        StoreLine(_mm512_mullo_epi16(even, factor), _mm512_mullo_epi16(odd, factor), i, to);
      }
    }
  } else {
    __m512i factor[2], offset[2];
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* scales = cell + kInt4Codes + half * 32;
      factor[half] = Pairs(LoadInUnits(scales, inverse));
      offset[half] =
          kCodes == Codes::kInt4Minimum
              ? Pairs(LoadInUnits(scales + kLineBytes, inverse))
              : _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(factor[half], 3));
    }
    const __m512i code_bits = _mm512_set1_epi16(0x0f);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m512i line = _mm512_load_si512(cell + i * kLineBytes);
      const auto number = [&](__m512i code, int half) __attribute__((always_inline)) {
        return _mm512_add_epi16(_mm512_mullo_epi16(code, factor[half]), offset[half]);
      };
      StoreLine(number(_mm512_and_si512(line, code_bits), 0),
                number(_mm512_and_si512(_mm512_srli_epi16(line, 8), code_bits), 0), i, to);
      StoreLine(number(_mm512_and_si512(_mm512_srli_epi16(line, 4), code_bits), 1),
                number(_mm512_srli_epi16(line, 12), 1), i + 8, to);
    }
  }
}

// Row `row` of a panel's outputs but for unit and step.
TARE_KERNEL_INLINE __m512 ToFloats(const Sums& sums, std::int64_t row) {
  const auto eight = [&](std::int64_t first) __attribute__((always_inline)) {
    const auto doubles = [&](const std::int32_t* from) __attribute__((always_inline)) {
      return _mm512_cvtepi32_pd(
          _mm256_load_si256(reinterpret_cast<const __m256i*>(from + row * kPanelCols + first)));
    };
    const __m512d base = _mm512_set1_pd(1 << kLowBits);
    const __m512d upper = _mm512_fmadd_pd(doubles(sums.high), base, doubles(sums.middle));
    return _mm512_cvtpd_ps(_mm512_fmadd_pd(upper, base, doubles(sums.low)));
  };
  return _mm512_insertf32x8(_mm512_castps256_ps512(eight(0)), eight(8), 1);
}

#define TARE_CLEAR(h, m, l) \
  do {                      \
    TARE_TILE_ZERO(h);      \
    TARE_TILE_ZERO(m);      \
    TARE_TILE_ZERO(l);      \
  } while (false)
#define TARE_LOAD_SUMS(h, m, l, sums)             \
  do {                                            \
    TARE_TILE_LOAD(h, (sums).high, kLineBytes);   \
    TARE_TILE_LOAD(m, (sums).middle, kLineBytes); \
    TARE_TILE_LOAD(l, (sums).low, kLineBytes);    \
  } while (false)
#define TARE_STORE_SUMS(h, m, l, sums)             \
  do {                                             \
    TARE_TILE_STORE(h, (sums).high, kLineBytes);   \
    TARE_TILE_STORE(m, (sums).middle, kLineBytes); \
    TARE_TILE_STORE(l, (sums).low, kLineBytes);    \
  } while (false)
// The four products of a block's codes of a cell with weights, into tiles 0, 1 and 2 by way of 4
// to 7.
#define TARE_MULTIPLY(codes, weights)                    \
  do {                                                   \
    TARE_TILE_LOAD(4, (codes), kLineBytes);              \
    TARE_TILE_LOAD(6, (weights).high, kLineBytes);       \
    TARE_TILE_DOT_SS(0, 4, 6);                           \
    TARE_TILE_LOAD(7, (weights).low, kLineBytes);        \
    TARE_TILE_DOT_SU(1, 4, 7);                           \
    TARE_TILE_LOAD(5, (codes) + kTileBytes, kLineBytes); \
    TARE_TILE_DOT_SU(2, 5, 7);                           \
    TARE_TILE_DOT_SS(1, 5, 6);                           \
  } while (false)

// One or two blocks of rows of INT8: the sums of a panel stay in tiles to its end, and weights
// become tiles shortly before they are met.
template <int kBlocks>
void FewRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
             std::int64_t end) {
  constexpr std::int64_t kAhead = 8192;  // bytes asked for ahead of the cell that is unpacked
  constexpr std::int64_t kSlots = 4;
  constexpr int kCellBytes = kInt8Codes + kLineBytes;
  struct alignas(4096) Buffers {
    Tiles weights[kSlots];
    Sums sums[kBlocks];
  } buffers;
  TileConfig config;
  const int rows = static_cast<int>(Least(x.rows, kBlockRows));
  for (int tile = 0; tile < 6; ++tile) SetTile(config, tile, rows, kLineBytes);
  SetTile(config, 6, kBlocks == 1 ? 16 : rows, kLineBytes);
  SetTile(config, 7, 16, kLineBytes);
  LoadTileConfig(config);
  const std::int64_t block_bytes = x.cells * 2 * kTileBytes;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const Units units = UnitsOf(w, panel);
    const std::uint8_t* cell = CellAt(w, panel, 0);
    const auto unpack = [&](std::int64_t c) __attribute__((always_inline)) {
#pragma GCC unroll 20
      for (int line = 0; line < kCellBytes; line += kLineBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
      }
      UnpackCell<Codes::kInt8>(cell, units.inverse, buffers.weights[c % kSlots]);
      cell += kCellBytes;
    };
    unpack(0);
    if (w.cells > 1) unpack(1);
    TARE_CLEAR(0, 1, 2);
    if constexpr (kBlocks > 1) TARE_CLEAR(3, 4, 5);
    const std::int8_t* codes = x.codes;
    for (std::int64_t c = 0; c < w.cells; ++c, codes += 2 * kTileBytes) {
      if (c + 2 < w.cells) unpack(c + 2);
      const Tiles& weights = buffers.weights[c % kSlots];
      if constexpr (kBlocks == 1) {
        TARE_MULTIPLY(codes, weights);
      } else {
        TARE_TILE_LOAD(7, weights.high, kLineBytes);
        TARE_TILE_LOAD(6, codes, kLineBytes);
        TARE_TILE_DOT_SS(0, 6, 7);
        TARE_TILE_LOAD(6, codes + block_bytes, kLineBytes);
        TARE_TILE_DOT_SS(3, 6, 7);
        TARE_TILE_LOAD(6, codes + kTileBytes, kLineBytes);
        TARE_TILE_DOT_SS(1, 6, 7);
        TARE_TILE_LOAD(6, codes + block_bytes + kTileBytes, kLineBytes);
        TARE_TILE_DOT_SS(4, 6, 7);
        TARE_TILE_LOAD(7, weights.low, kLineBytes);
        TARE_TILE_DOT_SU(5, 6, 7);
        TARE_TILE_LOAD(6, codes + kTileBytes, kLineBytes);
        TARE_TILE_DOT_SU(2, 6, 7);
        TARE_TILE_LOAD(6, codes, kLineBytes);
        TARE_TILE_DOT_SU(1, 6, 7);
        TARE_TILE_LOAD(6, codes + block_bytes, kLineBytes);
        TARE_TILE_DOT_SU(4, 6, 7);
      }
    }
    TARE_STORE_SUMS(0, 1, 2, buffers.sums[0]);
    if constexpr (kBlocks > 1) TARE_STORE_SUMS(3, 4, 5, buffers.sums[kBlocks - 1]);
    const __mmask16 mask = PanelMask(w, panel);
    float* y = out.y + panel * kPanelCols;
    for (std::int64_t row = 0; row < x.rows; ++row, y += out.stride) {
      const __m512 scale = _mm512_mul_ps(units.unit, _mm512_set1_ps(x.steps[row]));
      const __m512 sum = ToFloats(buffers.sums[row / kBlockRows], row % kBlockRows);
      _mm512_mask_storeu_ps(y, mask, _mm512_mul_ps(sum, scale));
    }
  }
  ReleaseTiles();
}

template <Codes kCodes>
void ManyRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
              std::int64_t end) {
  struct alignas(4096) Buffers {
    Tiles weights[kCellsAtOnce];
    Sums sums[kBlocksAtOnce][kPanelsAtOnce];
  } buffers;
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  const std::int64_t blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  // Outputs of a block and panel, over its sums: in their place because they go to y row by row.
  const auto finish = [&](std::int64_t block, const Units& units, Sums& sums) {
    float* to = reinterpret_cast<float*>(sums.high);
    for (std::int64_t row = 0; row < kBlockRows; ++row) {
      const __m512 step = _mm512_set1_ps(x.steps[block * kBlockRows + row]);
      const __m512 sum = ToFloats(sums, row);
      _mm512_store_ps(to + row * kPanelCols, _mm512_mul_ps(sum, _mm512_mul_ps(units.unit, step)));
    }
  };
  for (std::int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::int64_t past = Least(first + kBlocksAtOnce, blocks);
    for (std::int64_t group = begin; group < end; group += kPanelsAtOnce) {
      const std::int64_t group_end = Least(group + kPanelsAtOnce, end);
      for (std::int64_t cell = 0; cell < w.cells; cell += kCellsAtOnce) {
        const std::int64_t cells = Least(w.cells - cell, kCellsAtOnce);
        for (std::int64_t panel = group; panel < group_end; ++panel) {
          const Units units = UnitsOf(w, panel);
          for (std::int64_t c = 0; c < cells; ++c) {
            UnpackCell<kCodes>(CellAt(w, panel, cell + c), units.inverse, buffers.weights[c]);
          }
          for (std::int64_t block = first; block < past; ++block) {
            Sums& sums = buffers.sums[block - first][panel - group];
            if (cell == 0) {
              TARE_CLEAR(0, 1, 2);
            } else {
              TARE_LOAD_SUMS(0, 1, 2, sums);
            }
            const std::int8_t* codes = x.codes + (block * x.cells + cell) * 2 * kTileBytes;
            for (std::int64_t c = 0; c < cells; ++c, codes += 2 * kTileBytes) {
              TARE_MULTIPLY(codes, buffers.weights[c]);
            }
            TARE_STORE_SUMS(0, 1, 2, sums);
            if (cell + cells == w.cells) finish(block, units, sums);
          }
        }
      }
      for (std::int64_t block = first; block < past; ++block) {
        const auto* tiles = reinterpret_cast<const float*>(buffers.sums[block - first][0].high);
        CopyOut(w, x, out, block, group, group_end, tiles, sizeof(Sums) / sizeof(float));
      }
    }
  }
  ReleaseTiles();
}

#undef TARE_CLEAR
#undef TARE_LOAD_SUMS
#undef TARE_STORE_SUMS
#undef TARE_MULTIPLY

}  // namespace

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.rows <= kInt8VnniRows || w.cells > kMostIntegerCells) {
    avx512::MatMulInt8(w, x, out, begin, end);
  } else if (x.rows <= kBlockRows) {
    FewRows<1>(w, x, out, begin, end);
  } else if (x.rows <= 2 * kBlockRows) {
    FewRows<2>(w, x, out, begin, end);
  } else {
    ManyRows<Codes::kInt8>(w, x, out, begin, end);
  }
}

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.rows <= kInt4VnniRows || w.cells > kMostIntegerCells) {
    avx512::MatMulInt4(w, x, out, begin, end);
  } else if (x.rows <= kInt4BlockRows) {
    MatMulInt4Blocks(w, x, out, begin, end);
  } else if (w.with_minimum) {
    ManyRows<Codes::kInt4Minimum>(w, x, out, begin, end);
  } else {
    ManyRows<Codes::kInt4>(w, x, out, begin, end);
  }
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
