// INT8 products of many rows on AMX, and the choice of kernel by number of rows: a few are VNNI's,
// up to 32 those of matmul_few_amx.cc. All give the bits that packed_layout.h prescribes.
//
// The codes, exact in BF16, become BF16 tiles, and both parts of the activations come as BF16 with
// their step applied: two tile products accumulate to the exact dot product times the step, which
// leaves the tile as floats, so that an output needs a single multiply-add for 32 inputs. (As
// bytes, the two parts would need a product tile each: storing them costs more than the products.)
// The four inputs k..k+3 whose codes share 32 bits of a line become the pairs (k, k+2) and (k+1,
// k+3) of two tile rows, because that is what shifts give; QuantizeTileRow orders the activations
// alike.
#if defined(__x86_64__)
#include "kernels/amx_many_rows-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kVnniRows = 4;
constexpr std::int64_t kTileHalves = kTileBytes / 2;

// One panel's weights of a chunk as tiles of BF16 codes, with the scale of each.
struct alignas(4096) Tiles {
  std::uint16_t codes[kGroupsAtOnce][kTileHalves];
  float scales[kGroupsAtOnce][kPanelCols];
};

struct alignas(4096) Products {
  float values[2][kPanelsAtOnce][kSums];
};

// Bytes: moved to the top of 32 bits and converted, they are exact floats of 8 significant bits,
// 2^24 too large, whose upper half is the BF16 number. The scales take the power of two back.
constexpr float kInt8Unit = 0x1p-24f;

TARE_KERNEL_INLINE void UnpackInt8(const std::uint8_t* lines, std::uint16_t* tile) {
  // Byte b of each 32 bits to their top; the rest 0.
  const auto to_top = [](int b) {
    return _mm512_set4_epi32((b + 12) << 24 | 0x808080, (b + 8) << 24 | 0x808080,
                             (b + 4) << 24 | 0x808080, b << 24 | 0x808080);
  };
  const __m512i top[4] = {to_top(0), to_top(1), to_top(2), to_top(3)};
  constexpr __mmask32 kOdd = 0xaaaaaaaau;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i line = _mm512_load_si512(lines + i * kLineBytes);
    const auto number = [&](int b) {
      return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(line, top[b])));
    };
    const auto pair = [&](int even, int odd) {
      return _mm512_mask_mov_epi16(_mm512_srli_epi32(number(even), 16), kOdd, number(odd));
    };
    _mm512_store_si512(tile + i * 64, pair(0, 2));
    _mm512_store_si512(tile + i * 64 + 32, pair(1, 3));
  }
}

TARE_KERNEL_INLINE void Unpack(const std::uint8_t* cell, std::int64_t cells, std::int64_t bytes,
                               Tiles& tiles) {
  const __m512 unit = _mm512_set1_ps(kInt8Unit);
  for (std::int64_t c = 0; c < cells; ++c, cell += bytes) {
    for (int half = 0; half < 2; ++half) {
      const std::int64_t g = 2 * c + half;
      UnpackInt8(cell + half * kInt8Codes / 2, tiles.codes[g]);
      _mm512_store_ps(tiles.scales[g],
                      _mm512_mul_ps(LoadScales(cell + kInt8Codes + half * 32), unit));
    }
  }
}

// A step of panel p of a block, whose product tile is c: stores the product of the group before,
// begins that of this group, and adds the one before the last to the sums. Loads that follow a tile
// store too closely would wait for it, and so would a tile store for a product just begun.
#define TARE_STEP(c, p)                                                    \
  do {                                                                     \
    if (p >= width) break;                                                 \
    if (group > 0 && group <= groups) {                                    \
      TARE_TILE_STORE(c, products.values[(group - 1) % 2][p], kLineBytes); \
    }                                                                      \
    if (group < groups) {                                                  \
      TARE_TILE_LOAD(2, weights[p].codes[group], kLineBytes);              \
      TARE_TILE_ZERO(c);                                                   \
      TARE_TILE_DOT_BF16(c, 0, 2);                                         \
      TARE_TILE_DOT_BF16(c, 1, 2);                                         \
    }                                                                      \
    if (group >= 2) add(group - 2, p);                                     \
  } while (false)

// A block of 16 rows x up to 4 panels over the groups of a chunk. The two tiles of a group's inputs
// (high and low) meet the weights of all panels.
TARE_KERNEL_INLINE void Block(const Tiles* weights, std::int64_t width, std::int64_t groups,
                              const std::uint16_t* input, bool is_first, float (*totals)[kSums],
                              Products& products) {
  const auto add = [&](std::int64_t group, std::int64_t panel) __attribute__((always_inline)) {
    float* total = totals[panel];
    const Tiles& w = weights[panel];
    const float* product = products.values[group % 2][panel];
    const __m512 scale = _mm512_load_ps(w.scales[group]);
    const bool from_zero = is_first && group == 0;
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      const int at = r * kPanelCols;
      __m512 acc = from_zero ? _mm512_setzero_ps() : _mm512_load_ps(total + at);
      acc = _mm512_fmadd_ps(_mm512_load_ps(product + at), scale, acc);
      _mm512_store_ps(total + at, acc);
    }
  };
  for (std::int64_t group = 0; group < groups + 2; ++group) {
    if (group < groups) {
      TARE_TILE_LOAD(0, input + group * 2 * kTileHalves, kLineBytes);
      TARE_TILE_LOAD(1, input + (group * 2 + 1) * kTileHalves, kLineBytes);
    }
    TARE_STEP(4, 0);
    TARE_STEP(5, 1);
    TARE_STEP(6, 2);
    TARE_STEP(7, 3);
  }
}

#undef TARE_STEP

void ManyRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
              std::int64_t end) {
  Products products;
  ForManyRows<Tiles>(
      w, x, out, begin, end,
      [&](const std::uint8_t* cell, std::int64_t cells, Tiles& tiles) {
        Unpack(cell, cells, w.cell_bytes, tiles);
      },
      [&](const Tiles* tiles, const ManyRowsChunk& chunk) {
        float(*totals)[kSums] = chunk.totals;
        for (std::int64_t block = chunk.first; block < chunk.past; ++block) {
          const std::int64_t at = 2 * (block * x.cells + chunk.cell);
          Block(tiles, chunk.panels, 2 * chunk.cells, x.tiles + at * 2 * kTileHalves,
                chunk.cell == 0, totals, products);
          totals += kPanelsOfGroup;
        }
      });
}

}  // namespace

void MatMulInt8(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.tiles != nullptr) return ManyRows(w, x, out, begin, end);
  if (x.rows > kVnniRows) return MatMulFewRows(w, x, out, begin, end);
  avx512::MatMulInt8(w, x, out, begin, end);
}

void QuantizeTileRow(const float* x, std::int64_t cols, std::int64_t cells, int slot,
                     std::uint16_t* tiles, float* half_sums) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,  11, 12, 14, 13, 15,
      16, 18, 17, 19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (std::int64_t group = 0; group < 2 * cells; ++group) {
    const GroupCodes codes = QuantizeGroup(x, cols, group);
    // Numbers of at most 8 significant bits: the upper halves are all of them.
    const auto store = [&](const __m512i* parts, float step, std::uint16_t* to) {
      const auto upper = [&](__m512i part) {
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(part), _mm512_set1_ps(step));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(value), 16));
      };
      const __m512i both =
          _mm512_inserti64x4(_mm512_castsi256_si512(upper(parts[0])), upper(parts[1]), 1);
      _mm512_store_si512(to, _mm512_permutexvar_epi16(order, both));
    };
    std::uint16_t* to = tiles + (group * 2 * kBlockRows + slot) * kGroup;
    store(codes.high, codes.step * static_cast<float>(1 << kLowBits), to);
    store(codes.low, codes.step, to + kTileHalves);
    half_sums[group * kBlockRows + slot] = static_cast<float>(codes.sum) * codes.step;
  }
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
