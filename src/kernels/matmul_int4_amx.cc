// INT4 products block by block of 16 rows on AMX, where unpacking weights counts.
//
// The numbers m * code + z of packed_layout.h are not made. With m = 16 * h + l, h * code and
// l * code are bytes, and a 16-bit multiplication makes two of them at a time: two tiles of bytes
// for a quarter of the instructions. A product of a code with a negative m is one of 15 - code with
// -m, and a z more. What the z add, the sum over halves of cells of z * the half's sum of codes, is
// itself a product of integers, of bytes of z with bytes of the sums, with one column a half.
#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kAhead = 8192;        // bytes asked for ahead of the cell that is unpacked
constexpr std::int64_t kSlots = 4;           // cells unpacked ahead of the products, and two more
constexpr std::int64_t kPanelsOfStrip = 16;  // that blocks of rows meet in turn, from L2
constexpr std::int64_t kMostSumTiles = SumTiles(kMostIntegerCells);

struct Tiles {
  std::uint8_t upper[kTileBytes];  // h * code
  std::uint8_t lower[kTileBytes];  // l * code
};

struct Buffers {
  alignas(4096) Tiles weights[kSlots];
  // z of 64 halves as bytes, for each four halves a line of 4 bytes a feature.
  alignas(64) std::uint8_t z_high[kMostSumTiles * kTileBytes];
  alignas(64) std::uint8_t z_low[kMostSumTiles * kTileBytes];
  alignas(64) std::int32_t sums[8][kSums];  // 2^12, 2^8, 2^4 and 1 times; 2^24, 2^16, 2^8 and 1
};

// The numbers of half a cell: h and l in pairs, what to flip codes with, and z.
struct Numbers {
  __m512i upper, lower, flip, z;
};

template <bool kMinimum>
TARE_KERNEL_INLINE Numbers NumbersOf(const std::uint8_t* scales, __m512 inverse) {
  const __m512i m = LoadInUnits(scales, inverse);
  const __m512i negative = _mm512_srai_epi32(m, 31);
  const __m512i magnitude = _mm512_abs_epi32(m);
  const __m512i fifteen = _mm512_sub_epi32(_mm512_slli_epi32(m, 4), m);
  const __m512i offset = kMinimum
                             ? LoadInUnits(scales + kLineBytes, inverse)
                             : _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(m, 3));
  return {Pairs(_mm512_srli_epi32(magnitude, 4)),
          Pairs(_mm512_and_si512(magnitude, _mm512_set1_epi32(15))),
          _mm512_and_si512(negative, _mm512_set1_epi8(0x0f)),
          _mm512_add_epi32(offset, _mm512_and_si512(negative, fifteen))};
}

// z of the four halves of two cells to their lines of bytes.
TARE_KERNEL_INLINE void StoreOffsets(const __m512i* z, std::uint8_t* high, std::uint8_t* low) {
  // 16-bit pairs of halves, then their bytes ordered low, low, high, high.
  const __m512i order = _mm512_set4_epi32(0x0f0d0e0c, 0x0b090a08, 0x07050604, 0x03010200);
  const auto pair = [&](__m512i even, __m512i odd) __attribute__((always_inline)) {
    return _mm512_shuffle_epi8(_mm512_mask_mov_epi16(_mm512_slli_epi32(odd, 16), 0x55555555u, even),
                               order);
  };
  const __m512i first = pair(z[0], z[1]), second = pair(z[2], z[3]);
  _mm512_store_si512(low, _mm512_mask_mov_epi16(_mm512_slli_epi32(second, 16), 0x55555555u, first));
  _mm512_store_si512(high,
                     _mm512_mask_mov_epi16(second, 0x55555555u, _mm512_srli_epi32(first, 16)));
}

template <bool kMinimum>
TARE_KERNEL_INLINE void UnpackCell(const std::uint8_t* cell, __m512 inverse, Tiles& to,
                                   __m512i* z) {
  constexpr int kAndXor = 0x6a;  // (a & b) ^ c
  const Numbers first = NumbersOf<kMinimum>(cell + kInt4Codes, inverse);
  const Numbers second = NumbersOf<kMinimum>(cell + kInt4Codes + 32, inverse);
  z[0] = first.z;
  z[1] = second.z;
  const __m512i code_bits = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i line = _mm512_load_si512(cell + i * kLineBytes);
    const auto store = [&](__m512i codes, const Numbers& by, int at)
        __attribute__((always_inline)) {
      codes = _mm512_ternarylogic_epi64(codes, code_bits, by.flip, kAndXor);
      _mm512_store_si512(to.upper + at * kLineBytes, _mm512_mullo_epi16(codes, by.upper));
      _mm512_store_si512(to.lower + at * kLineBytes, _mm512_mullo_epi16(codes, by.lower));
    };
    store(line, first, i);
    store(_mm512_srli_epi16(line, 4), second, i + 8);
  }
}

// Row `row` of a panel's outputs but for unit and step.
TARE_KERNEL_INLINE __m512 ToFloats(const std::int32_t (*sums)[kSums], std::int64_t row) {
  const auto eight = [&](std::int64_t first) __attribute__((always_inline)) {
    const auto doubles = [&](int which) __attribute__((always_inline)) {
      return _mm512_cvtepi32_pd(_mm256_load_si256(
          reinterpret_cast<const __m256i*>(sums[which] + row * kPanelCols + first)));
    };
    const auto times = [](__m512d value, int by, __m512d more) __attribute__((always_inline)) {
      return _mm512_fmadd_pd(value, _mm512_set1_pd(by), more);
    };
    const __m512d codes =
        times(times(times(doubles(0), 16, doubles(1)), 16, doubles(2)), 16, doubles(3));
    const __m512d offsets =
        times(times(times(doubles(4), 256, doubles(5)), 256, doubles(6)), 256, doubles(7));
    return _mm512_cvtpd_ps(_mm512_add_pd(codes, offsets));
  };
  return _mm512_insertf32x8(_mm512_castps256_ps512(eight(0)), eight(8), 1);
}

#define TARE_CLEAR()   \
  do {                 \
    TARE_TILE_ZERO(0); \
    TARE_TILE_ZERO(1); \
    TARE_TILE_ZERO(2); \
    TARE_TILE_ZERO(3); \
  } while (false)
#define TARE_STORE_SUMS(first)                                 \
  do {                                                         \
    TARE_TILE_STORE(0, buffers.sums[first], kLineBytes);       \
    TARE_TILE_STORE(1, buffers.sums[(first) + 1], kLineBytes); \
    TARE_TILE_STORE(2, buffers.sums[(first) + 2], kLineBytes); \
    TARE_TILE_STORE(3, buffers.sums[(first) + 3], kLineBytes); \
  } while (false)

// A block of up to 16 rows from `row` on.
template <bool kMinimum>
void Block(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t row,
           std::int64_t begin, std::int64_t end, Buffers& buffers) {
  constexpr int kCellBytes = kInt4Codes + (kMinimum ? 2 : 1) * kLineBytes;
  const std::int64_t block = row / kBlockRows;
  const std::int64_t rows = Least(x.rows - row, kBlockRows);
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) SetTile(config, tile, static_cast<int>(rows), kLineBytes);
  for (int tile = 6; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
  const std::int8_t* const first_codes = x.codes + block * x.cells * 2 * kTileBytes;
  const std::uint8_t* const first_sums =
      x.sum_bytes + block * SumTiles(x.cells) * kSumBytes * kTileBytes;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const Units units = UnitsOf(w, panel);
    const std::uint8_t* cell = CellAt(w, panel, 0);
    __m512i z[4];
    const auto unpack = [&](std::int64_t c) __attribute__((always_inline)) {
#pragma GCC unroll 10
      for (int line = 0; line < kCellBytes; line += kLineBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(cell + kAhead + line), _MM_HINT_T0);
      }
      UnpackCell<kMinimum>(cell, units.inverse, buffers.weights[c % kSlots], z + c % 2 * 2);
      cell += kCellBytes;
      if (c % 2 == 0 && c + 1 < w.cells) return;
      if (c % 2 == 0) z[2] = z[3] = _mm512_setzero_si512();
      const std::int64_t at = c / 2 * kLineBytes;
      StoreOffsets(z, buffers.z_high + at, buffers.z_low + at);
    };
    unpack(0);
    if (w.cells > 1) unpack(1);
    TARE_CLEAR();
    const std::int8_t* codes = first_codes;
    for (std::int64_t c = 0; c < w.cells; ++c, codes += 2 * kTileBytes) {
      if (c + 2 < w.cells) unpack(c + 2);
      const Tiles& weights = buffers.weights[c % kSlots];
      TARE_TILE_LOAD(4, codes, kLineBytes);
      TARE_TILE_LOAD(6, weights.upper, kLineBytes);
      TARE_TILE_DOT_SU(0, 4, 6);
      TARE_TILE_LOAD(7, weights.lower, kLineBytes);
      TARE_TILE_DOT_SU(1, 4, 7);
      TARE_TILE_LOAD(5, codes + kTileBytes, kLineBytes);
      TARE_TILE_DOT_SU(2, 5, 6);
      TARE_TILE_DOT_SU(3, 5, 7);
    }
    TARE_STORE_SUMS(0);
    TARE_CLEAR();
    const std::uint8_t* sums = first_sums;
    for (std::int64_t tile = 0; tile < SumTiles(w.cells); ++tile) {
      TARE_TILE_LOAD(6, buffers.z_high + tile * kTileBytes, kLineBytes);
      TARE_TILE_LOAD(7, buffers.z_low + tile * kTileBytes, kLineBytes);
      TARE_TILE_LOAD(4, sums, kLineBytes);
      TARE_TILE_DOT_SS(0, 4, 6);
      TARE_TILE_DOT_SU(1, 4, 7);
      TARE_TILE_LOAD(5, sums + kTileBytes, kLineBytes);
      TARE_TILE_DOT_US(1, 5, 6);
      TARE_TILE_DOT_UU(2, 5, 7);
      TARE_TILE_LOAD(4, sums + 2 * kTileBytes, kLineBytes);
      TARE_TILE_DOT_US(2, 4, 6);
      TARE_TILE_DOT_UU(3, 4, 7);
      sums += kSumBytes * kTileBytes;
    }
    TARE_STORE_SUMS(4);
    const __mmask16 mask = PanelMask(w, panel);
    float* y = out.y + row * out.stride + panel * kPanelCols;
    for (std::int64_t r = 0; r < rows; ++r, y += out.stride) {
      const __m512 scale = _mm512_mul_ps(units.unit, _mm512_set1_ps(x.steps[row + r]));
      _mm512_mask_storeu_ps(y, mask, _mm512_mul_ps(ToFloats(buffers.sums, r), scale));
    }
  }
}

#undef TARE_CLEAR
#undef TARE_STORE_SUMS

template <bool kMinimum>
void Blocks(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
            std::int64_t end) {
  Buffers buffers;
  // Lines of the last tile of z that no cell writes.
  const std::int64_t last = (SumTiles(w.cells) - 1) * kTileBytes;
  __builtin_memset(buffers.z_high + last, 0, kTileBytes);
  __builtin_memset(buffers.z_low + last, 0, kTileBytes);
  for (std::int64_t first = begin; first < end; first += kPanelsOfStrip) {
    const std::int64_t past = Least(first + kPanelsOfStrip, end);
    for (std::int64_t row = 0; row < x.rows; row += kBlockRows) {
      Block<kMinimum>(w, x, out, row, first, past, buffers);
    }
  }
  ReleaseTiles();
}

}  // namespace

void MatMulInt4Blocks(const WeightCells& w, const ActivationCells& x, const Output& out,
                      std::int64_t begin, std::int64_t end) {
  if (w.with_minimum) return Blocks<true>(w, x, out, begin, end);
  Blocks<false>(w, x, out, begin, end);
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
