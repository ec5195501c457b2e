// INT4 products of many rows on AMX, and the choice of kernel by number of rows: a few are VNNI's,
// up to 16 those of matmul_few_amx.cc. All give the bits that packed_layout.h prescribes.
//
// The codes become byte tiles in which 16 * code meets the high and code the low bytes of the
// activations (amx-inl.h): one tile product is the exact dot product of 32 inputs.
//
// What bounds the loop is neither the tile product (16 cycles of 80 to 110 in place) nor memory but
// the vector instructions and loads beside it, which hardly overlap with tile loads and stores. The
// sums of 16 x 16 outputs therefore stay in registers for all groups of a chunk. (Least time of 60
// turns, family 6 model 207, 2026-11-30: 512 x 1024 x 2048 in Q4_0 4.8 ms; with BF16 tiles and two
// products 5.7 ms; with sums in memory and inputs shared by four panels 5.1 ms.)
#if defined(__x86_64__)
#include "kernels/amx_many_rows-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

constexpr std::int64_t kVnniRows = 4;
constexpr std::int64_t kLag = 2;  // products between storing and adding one
constexpr std::int64_t kSlots = 4;

// One panel's weights of a chunk as tiles, with the scale and minimum of each.
struct alignas(4096) Tiles {
  std::uint8_t codes[kGroupsAtOnce][kTileBytes];
  float scales[kGroupsAtOnce][kPanelCols];
  float minima[kGroupsAtOnce][kPanelCols];
};

// Product tiles on their way to vector registers.
struct alignas(4096) Products {
  std::int32_t values[kSlots][kSums];
};

template <bool kMinimum>
TARE_KERNEL_INLINE void Unpack(const std::uint8_t* cell, std::int64_t cells, std::int64_t bytes,
                               Tiles& tiles) {
  for (std::int64_t c = 0; c < cells; ++c, cell += bytes) {
    const std::int64_t g = 2 * c;
    UnpackInt4<kMinimum>(cell, tiles.codes[g], tiles.codes[g + 1]);
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* scales = cell + kInt4Codes + half * 32;
      _mm512_store_ps(tiles.scales[g + half], LoadScales(scales));
      if constexpr (kMinimum) {
        _mm512_store_ps(tiles.minima[g + half], LoadScales(scales + kLineBytes));
      }
    }
  }
}

// Product tile c of a group's inputs and weights, by way of tiles a and b.
#define TARE_DOT(c, a, b, group)                               \
  do {                                                         \
    TARE_TILE_LOAD(a, input + (group)*kTileBytes, kLineBytes); \
    TARE_TILE_LOAD(b, weights[p].codes[group], kLineBytes);    \
    TARE_TILE_ZERO(c);                                         \
    if constexpr (kMinimum) {                                  \
      TARE_TILE_DOT_INT8_UINT8(c, a, b);                       \
    } else {                                                   \
      TARE_TILE_DOT_INT8(c, a, b);                             \
    }                                                          \
  } while (false)

// Adds the products of a chunk to their sums in the order they are made: block by block, in a block
// panel by panel, there group by group. The sums of a block and panel stay in registers.
struct Adder {
  const Tiles* weights;
  std::int64_t panels;
  std::int64_t groups;
  bool is_first;            // chunk of these sums
  const float* steps;       // of the current block, from the chunk's first group on
  const float* half_sums;   // likewise
  std::int64_t input_step;  // from a block's steps or half_sums to the next one's
  float (*totals)[kSums];   // sums of the current block
  std::int64_t total_step;  // from a block's sums to the next one's
  std::int64_t panel = 0;   // of the next product
  std::int64_t group = 0;   // likewise
  __m512 acc[kBlockRows] = {};
};

template <bool kMinimum>
TARE_KERNEL_INLINE void Add(Adder& to, const std::int32_t* product) {
  float* total = to.totals[to.panel];
  if (to.group == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      to.acc[r] = to.is_first ? _mm512_setzero_ps() : _mm512_load_ps(total + r * kPanelCols);
    }
  }
  const Tiles& w = to.weights[to.panel];
  const __m512 scale = _mm512_load_ps(w.scales[to.group]);
  const std::int64_t at = to.group * kBlockRows;
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(product + r * kPanelCols));
    const __m512 value = _mm512_mul_ps(dot, _mm512_set1_ps(to.steps[at + r]));
    to.acc[r] = _mm512_fmadd_ps(value, scale, to.acc[r]);
    if constexpr (kMinimum) {
      to.acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(to.half_sums[at + r]),
                                  _mm512_load_ps(w.minima[to.group]), to.acc[r]);
    }
  }
  if (++to.group < to.groups) return;
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) _mm512_store_ps(total + r * kPanelCols, to.acc[r]);
  to.group = 0;
  if (++to.panel < to.panels) return;
  to.panel = 0;
  to.totals += to.total_step;
  to.steps += to.input_step;
  to.half_sums += to.input_step;
}

// All blocks of rows x all panels of a chunk, as one stream of products. A product is stored while
// the next is made and added kLag later: loads that follow a tile store too closely would wait for
// it, and so would a tile store for a product just begun.
template <bool kMinimum>
TARE_KERNEL_INLINE void Chunk(Adder adder, std::int64_t blocks, const std::int8_t* input,
                              std::int64_t input_bytes, Products& products) {
  const std::int64_t groups = adder.groups, panels = adder.panels;
  const Tiles* const weights = adder.weights;
  const auto slot = [&](std::int64_t product) { return products.values[product % kSlots]; };
  std::int64_t made = 0;
  for (std::int64_t block = 0; block < blocks; ++block, input += input_bytes) {
    for (std::int64_t p = 0; p < panels; ++p) {
      for (std::int64_t group = 0; group < groups; group += 2, made += 2) {
        TARE_DOT(0, 4, 6, group);
        if (made > 0) TARE_TILE_STORE(1, slot(made - 1), kLineBytes);
        if (made > kLag) Add<kMinimum>(adder, slot(made - 1 - kLag));
        TARE_DOT(1, 5, 7, group + 1);
        TARE_TILE_STORE(0, slot(made), kLineBytes);
        if (made >= kLag) Add<kMinimum>(adder, slot(made - kLag));
      }
    }
  }
  TARE_TILE_STORE(1, slot(made - 1), kLineBytes);
  for (std::int64_t left = made > kLag ? made - 1 - kLag : 0; left < made; ++left) {
    Add<kMinimum>(adder, slot(left));
  }
}

#undef TARE_DOT

template <bool kMinimum>
void ManyRows(const WeightCells& w, const ActivationCells& x, const Output& out, std::int64_t begin,
              std::int64_t end) {
  Products products;
  const std::int64_t groups_of_row = 2 * x.cells;
  ForManyRows<Tiles>(
      w, x, out, begin, end,
      [&](const std::uint8_t* cell, std::int64_t cells, Tiles& tiles) {
        Unpack<kMinimum>(cell, cells, w.cell_bytes, tiles);
      },
      [&](const Tiles* tiles, const ManyRowsChunk& chunk) {
        const std::int64_t group = chunk.first * groups_of_row + 2 * chunk.cell;
        const std::int64_t at = group * kBlockRows;
        Chunk<kMinimum>({.weights = tiles,
                         .panels = chunk.panels,
                         .groups = 2 * chunk.cells,
                         .is_first = chunk.cell == 0,
                         .steps = x.steps + at,
                         .half_sums = x.half_sums + at,
                         .input_step = groups_of_row * kBlockRows,
                         .totals = chunk.totals,
                         .total_step = kPanelsOfGroup},
                        chunk.past - chunk.first, x.codes + group * kTileBytes,
                        groups_of_row * kTileBytes, products);
      });
}

}  // namespace

void MatMulInt4(const WeightCells& w, const ActivationCells& x, const Output& out,
                std::int64_t begin, std::int64_t end) {
  if (x.rows <= kVnniRows) return avx512::MatMulInt4(w, x, out, begin, end);
  if (x.rows <= kBlockRows) return MatMulFewRows(w, x, out, begin, end);
  if (w.with_minimum) return ManyRows<true>(w, x, out, begin, end);
  ManyRows<false>(w, x, out, begin, end);
}

}  // namespace tare::kernels::amx

#endif  // __x86_64__
