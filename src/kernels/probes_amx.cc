#if defined(__x86_64__)
#include "kernels/amx-inl.h"
#include "kernels/probes.h"

namespace tare::kernels {
namespace {

void ConfigureFullTiles() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) SetTile(config, tile, 16, kLineBytes);
  LoadTileConfig(config);
}

void ZeroTiles() {
  TARE_TILE_ZERO(0);
  TARE_TILE_ZERO(1);
  TARE_TILE_ZERO(2);
  TARE_TILE_ZERO(3);
  TARE_TILE_ZERO(4);
  TARE_TILE_ZERO(5);
  TARE_TILE_ZERO(6);
  TARE_TILE_ZERO(7);
}

constexpr std::int64_t kProducts = 4;  // independent accumulators hide the latency of 52 cycles

}  // namespace

std::int64_t ProbeInt8Amx(std::int64_t rounds) {
  ConfigureFullTiles();
  ZeroTiles();
  for (std::int64_t round = 0; round < rounds; ++round) {
    TARE_TILE_DOT_SS(0, 4, 6);
    TARE_TILE_DOT_SS(1, 4, 7);
    TARE_TILE_DOT_SS(2, 5, 6);
    TARE_TILE_DOT_SS(3, 5, 7);
  }
  ReleaseTiles();
  return rounds * kProducts * 16 * 16 * 64 * 2;
}

std::int64_t ProbeBf16Amx(std::int64_t rounds) {
  ConfigureFullTiles();
  ZeroTiles();
  for (std::int64_t round = 0; round < rounds; ++round) {
    TARE_TILE_DOT_BF16(0, 4, 6);
    TARE_TILE_DOT_BF16(1, 4, 7);
    TARE_TILE_DOT_BF16(2, 5, 6);
    TARE_TILE_DOT_BF16(3, 5, 7);
  }
  ReleaseTiles();
  return rounds * kProducts * 16 * 16 * 32 * 2;
}

}  // namespace tare::kernels

#endif  // __x86_64__
