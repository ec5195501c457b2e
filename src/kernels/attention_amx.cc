// Attention on AMX tiles; see attention_bf16-inl.h. A page's K part holds a full tile for every 32
// dimensions; its V part a half-depth one (16 tokens) for every 16 dimensions.
#if defined(__x86_64__)
#define TARE_KERNELS_NAMESPACE amx
#include "kernels/amx-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::amx {
namespace {

struct Products {
  Products() {
    TileConfig config;
    for (int tile = 0; tile < 5; ++tile) SetTile(config, tile, 16, kLineBytes);  // sums, queries
    SetTile(config, 5, 16, 32);          // weights of a page
    SetTile(config, 6, 16, kLineBytes);  // K
    SetTile(config, 7, 8, kLineBytes);   // V
    LoadTileConfig(config);
  }
  ~Products() { ReleaseTiles(); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void Scores(const std::uint16_t* q, const std::uint8_t* const* k, int pages, int steps, int,
              float* scores) const {
    constexpr int kScoreStride = 64 * 4;
    TARE_TILE_ZERO(0);
    TARE_TILE_ZERO(1);
    TARE_TILE_ZERO(2);
    TARE_TILE_ZERO(3);
    for (int step = 0; step < steps; ++step) {
      const std::int64_t at = std::int64_t{step} * 16 * kLineBytes;
      TARE_TILE_LOAD(4, q + step * 16 * 32, kLineBytes);
      TARE_TILE_LOAD(6, k[0] + at, kLineBytes);
      TARE_TILE_DOT_BF16(0, 4, 6);
      if (pages > 1) {
        TARE_TILE_LOAD(6, k[1] + at, kLineBytes);
        TARE_TILE_DOT_BF16(1, 4, 6);
      }
      if (pages > 2) {
        TARE_TILE_LOAD(6, k[2] + at, kLineBytes);
        TARE_TILE_DOT_BF16(2, 4, 6);
      }
      if (pages > 3) {
        TARE_TILE_LOAD(6, k[3] + at, kLineBytes);
        TARE_TILE_DOT_BF16(3, 4, 6);
      }
    }
    TARE_TILE_STORE(0, scores, kScoreStride);
    TARE_TILE_STORE(1, scores + 16, kScoreStride);
    TARE_TILE_STORE(2, scores + 32, kScoreStride);
    TARE_TILE_STORE(3, scores + 48, kScoreStride);
  }

  void Values(const std::uint16_t* weights, const std::uint8_t* const* v, int pages, int dims,
              int first_tile, int width, int, float* sums) const {
    constexpr int kWeightStride = 64 * 2;
    constexpr int kSumStride = 4 * kLineBytes;
    TARE_TILE_ZERO(0);
    TARE_TILE_ZERO(1);
    TARE_TILE_ZERO(2);
    TARE_TILE_ZERO(3);
    const std::int64_t stride = std::int64_t{dims} * 4;
    for (int p = 0; p < pages; ++p) {
      const std::uint8_t* at = v[p] + first_tile * kLineBytes;
      TARE_TILE_LOAD(5, weights + p * 16, kWeightStride);
      TARE_TILE_LOAD(7, at, stride);
      TARE_TILE_DOT_BF16(0, 5, 7);
      TARE_TILE_LOAD(7, at + kLineBytes, stride);
      TARE_TILE_DOT_BF16(1, 5, 7);
      if (width > 2) {
        TARE_TILE_LOAD(7, at + 2 * kLineBytes, stride);
        TARE_TILE_DOT_BF16(2, 5, 7);
        TARE_TILE_LOAD(7, at + 3 * kLineBytes, stride);
        TARE_TILE_DOT_BF16(3, 5, 7);
      }
    }
    TARE_TILE_STORE(0, sums, kSumStride);
    TARE_TILE_STORE(1, sums + 16, kSumStride);
    if (width > 2) {
      TARE_TILE_STORE(2, sums + 32, kSumStride);
      TARE_TILE_STORE(3, sums + 48, kSumStride);
    }
  }
};

}  // namespace
}  // namespace tare::kernels::amx

#include "kernels/attention_bf16-inl.h"

#endif  // __x86_64__
