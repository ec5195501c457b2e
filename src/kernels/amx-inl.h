// AMX tiles by number, as assembly with the memory effects stated. GCC 12's intrinsics do not tell
// the compiler that _tile_loadconfig reads 64 bytes nor that _tile_loadd reads its source, so
// stores to either may be moved past them; a memory clobber on each statement rules that out.
#pragma once

#include <cstdint>

#include "kernels/avx512-inl.h"

namespace tare::kernels {

#define TARE_TILE_LOAD(tile, base, stride)                                               \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(base), "r"(std::int64_t{stride}) \
               : "memor"                                                                 \
                 "y")
#define TARE_TILE_STORE(tile, base, stride)                                                  \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(base), "r"(std::int64_t{stride}) \
               : "memory")
#define TARE_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::: "memory")
// c += a * b: signed bytes, signed with unsigned bytes, BF16 pairs. AT&T order: last operand is the
// destination.
#define TARE_TILE_DOT_INT8(c, a, b) \
  asm volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TARE_TILE_DOT_INT8_UINT8(c, a, b) \
  asm volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TARE_TILE_DOT_BF16(c, a, b) \
  asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

// Palette 1: for each of 8 tiles its rows and bytes per row.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

TARE_KERNEL_INLINE void SetTile(TileConfig& config, int tile, int rows, int row_bytes) {
  config.rows[tile] = static_cast<std::uint8_t>(rows);
  config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
}

TARE_KERNEL_INLINE void LoadTileConfig(const TileConfig& config) {
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

// Gives the tiles back: a thread that holds tile data pays for it at every context switch.
TARE_KERNEL_INLINE void ReleaseTiles() { asm volatile("tilerelease" ::: "memory"); }

// The 4-bit codes of a cell as two tiles of bytes, one for each half: 16 * code in the 8 lines that
// meet the high bytes of activations, code in the 8 that meet the low ones (packed_layout.h).
// Unsigned with minima, otherwise signed and less by 8.
template <bool kMinimum>
TARE_KERNEL_INLINE void UnpackInt4(const std::uint8_t* cell, std::uint8_t* first,
                                   std::uint8_t* second) {
  const __m512i low_bits = _mm512_set1_epi8(0x0f);
  const __m512i high_bits = _mm512_set1_epi8(static_cast<char>(0xf0));
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(kMinimum ? 0 : 0x80));
  const __m512i offset = _mm512_set1_epi8(kMinimum ? 0 : 8);
  constexpr int kAndXor = 0x6a;  // (a & b) ^ c
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512i both = _mm512_load_si512(cell + i * kLineBytes);
    const __m512i up = _mm512_slli_epi16(both, 4);
    const __m512i down = _mm512_srli_epi16(both, 4);
    const auto large = [&](__m512i codes) {
      return _mm512_ternarylogic_epi64(codes, high_bits, sign, kAndXor);
    };
    const auto small = [&](__m512i codes) {
      return _mm512_sub_epi8(_mm512_and_si512(codes, low_bits), offset);
    };
    _mm512_store_si512(first + i * kLineBytes, large(up));
    _mm512_store_si512(first + (i + 8) * kLineBytes, small(both));
    _mm512_store_si512(second + i * kLineBytes, large(both));
    _mm512_store_si512(second + (i + 8) * kLineBytes, small(down));
  }
}

// Finished sums of a block of rows, one tile per panel of [begin, end), to their places in y: row
// by row, because rows of y lie pages apart and every first touch of a page costs.
TARE_KERNEL_INLINE void CopyOut(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t block, std::int64_t begin, std::int64_t end,
                                const float* tiles) {
  constexpr int kSums = kBlockRows * kPanelCols;
  const std::int64_t left = x.rows - block * kBlockRows;
  for (std::int64_t r = 0; r < kBlockRows && r < left; ++r) {
    float* y = out.y + (block * kBlockRows + r) * out.stride + begin * kPanelCols;
    const float* from = tiles + r * kPanelCols;
    for (std::int64_t panel = begin; panel < end; ++panel, y += kPanelCols, from += kSums) {
      _mm512_mask_storeu_ps(y, PanelMask(w, panel), _mm512_load_ps(from));
    }
  }
}

}  // namespace tare::kernels
