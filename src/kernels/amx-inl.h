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
// c += a * b of bytes, signed (S) or not (U) in a and in b, or BF16 pairs. AT&T order: last operand
// is the destination.
#define TARE_TILE_DOT_SS(c, a, b) \
  asm volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TARE_TILE_DOT_SU(c, a, b) \
  asm volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TARE_TILE_DOT_US(c, a, b) \
  asm volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define TARE_TILE_DOT_UU(c, a, b) \
  asm volatile("tdpbuud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
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

inline constexpr std::int64_t kTileBytes = 1024;
inline constexpr int kSums = kBlockRows * kPanelCols;  // of a block of rows and a panel
// Of an integer product in tiles: sums of high with low bytes are below (127 * 128 + 127 * 255) *
// 64 a cell and must fit 31 bits.
inline constexpr std::int64_t kMostIntegerCells = 640;

TARE_KERNEL_INLINE std::int64_t Least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// The low 16 bits of each lane, twice: to meet pairs of 16-bit numbers.
TARE_KERNEL_INLINE __m512i Pairs(__m512i values) {
  return _mm512_mask_mov_epi16(_mm512_slli_epi32(values, 16), 0x55555555u, values);
}

// Finished sums of a block of rows, one tile per panel of [begin, end), to their places in y: row
// by row, because rows of y lie pages apart and every first touch of a page costs.
TARE_KERNEL_INLINE void CopyOut(const WeightCells& w, const ActivationCells& x, const Output& out,
                                std::int64_t block, std::int64_t begin, std::int64_t end,
                                const float* tiles, std::int64_t tile_step) {
  const std::int64_t left = x.rows - block * kBlockRows;
  for (std::int64_t r = 0; r < kBlockRows && r < left; ++r) {
    float* y = out.y + (block * kBlockRows + r) * out.stride + begin * kPanelCols;
    const float* from = tiles + r * kPanelCols;
    for (std::int64_t panel = begin; panel < end; ++panel, y += kPanelCols, from += tile_step) {
      _mm512_mask_storeu_ps(y, PanelMask(w, panel), _mm512_load_ps(from));
    }
  }
}

}  // namespace tare::kernels
