// Attention over BF16 and INT8 pages with BF16 products. The file that includes this defines, in
// its own namespace, how the two products are made:
//
//   struct Products;  // set up on construction (AMX: tile configuration)
//   // scores[row][page][16] for 16 rows: q is [steps][16][32], k[page] a K part
//   void Scores(const std::uint16_t* q, const std::uint8_t* const* k, int pages, int steps,
//               int rows, float* scores);
//   // sums[row][16 * tile ..] of weights [16][64] times the V parts, for `width` (2 or 4) tiles
//   void Values(const std::uint16_t* weights, const std::uint8_t* const* v, int pages, int dims,
//               int first_tile, int width, int rows, float* sums);
//
// Work goes in blocks of 64 tokens (4 pages). Tokens a row may not see get weight 0, which changes
// no bit of the row's state, so rows of different lengths share a tile.

#include <immintrin.h>

#include "kernels/attention_tile.h"
#include "kernels/avx512-inl.h"

namespace tare::kernels::TARE_KERNELS_NAMESPACE {
namespace {

constexpr int kBlockPages = 4;
constexpr int kBlockTokens = kBlockPages * kTokensPerPage;

// e^x for x <= 0 to about 2e-7 relative: 2^n * p(r), |r| <= ln2 / 2, Taylor to degree 6.
TARE_KERNEL_INLINE __m512 Exp(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720.0f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

TARE_KERNEL_INLINE float LargestOf(__m512 v) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  q = _mm_max_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}

TARE_KERNEL_INLINE float SumOf(__m512 v) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  q = _mm_add_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}

// 16 floats to BF16, rounded to nearest even.
TARE_KERNEL_INLINE __m256i ToBf16(__m512 v) { return (__m256i)_mm512_cvtneps_pbh(v); }

// Signed bytes to BF16 (exact), 32 at a time.
TARE_KERNEL_INLINE void BytesToBf16(const std::uint8_t* from, int count, std::uint16_t* to) {
  for (int i = 0; i < count; i += 32) {
    const __m512 low = _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    const __m512 high = _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + 16))));
    _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// The leading `dims` dimensions of a K part as a V part. A line of K has 16 tokens' pairs of
// dimensions: with neighbouring tokens' pairs turned, its eight 64-bit lanes are what eight lines
// of V take, so 16 dimensions are a transposition of 8 x 8 lanes.
TARE_KERNEL_INLINE void KeysToValues(const std::uint8_t* k, int dims, std::uint16_t* v) {
  const __m512i turn = _mm512_set4_epi32(0x0f0e0b0a, 0x0d0c0908, 0x07060302, 0x05040100);
  for (int d = 0; d < dims; d += 16) {
    __m512i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      a[i] = _mm512_shuffle_epi8(_mm512_load_si512(k + (d / 2 + i) * kLineBytes), turn);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {  // b[i]: even lanes of two lines, b[i + 1]: odd lanes
      b[i] = _mm512_unpacklo_epi64(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m512i c0 = _mm512_shuffle_i64x2(b[odd], b[2 + odd], 0x88);
      const __m512i c1 = _mm512_shuffle_i64x2(b[odd], b[2 + odd], 0xdd);
      const __m512i c2 = _mm512_shuffle_i64x2(b[4 + odd], b[6 + odd], 0x88);
      const __m512i c3 = _mm512_shuffle_i64x2(b[4 + odd], b[6 + odd], 0xdd);
      const auto store = [&](int line, __m512i value) __attribute__((always_inline)) {
        _mm512_store_si512(v + ((line + odd) * dims + d) * 2, value);
      };
      store(0, _mm512_shuffle_i64x2(c0, c2, 0x88));
      store(2, _mm512_shuffle_i64x2(c1, c3, 0x88));
      store(4, _mm512_shuffle_i64x2(c0, c2, 0xdd));
      store(6, _mm512_shuffle_i64x2(c1, c3, 0xdd));
    }
  }
}

// Query rows as BF16, [steps][16][32]; rows and dimensions that do not exist are zero.
TARE_KERNEL_INLINE void RoundQueries(const AttentionTile& tile, int steps, std::uint16_t* q) {
  const int dim = tile.kv.layout->head_dim;
  for (int row = 0; row < kTileRows; ++row) {
    for (int half = 0; half < 2 * steps; ++half) {
      const int left = row < tile.rows ? dim - half * 16 : 0;
      const __mmask16 mask = left >= 16  ? static_cast<__mmask16>(0xffff)
                             : left <= 0 ? static_cast<__mmask16>(0)
                                         : static_cast<__mmask16>((1u << left) - 1u);
      const __m512 values =
          mask == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, tile.q[row] + half * 16);
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(q + (half / 2 * kTileRows + row) * 32 + half % 2 * 16),
          ToBf16(values));
    }
  }
}

// One row's softmax step over a block. Returns what its earlier sums have to be multiplied by.
TARE_KERNEL_INLINE float RowWeights(const float* scores, int visible, float scale,
                                    const float* const* k_scales, const float* const* v_scales,
                                    float& largest, float& total, std::uint16_t* weights) {
  if (visible <= 0) {
    _mm512_store_si512(weights, _mm512_setzero_si512());
    _mm512_store_si512(weights + 32, _mm512_setzero_si512());
    return 1.0f;
  }
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 s[kBlockPages];
  __mmask16 mask[kBlockPages];
  __m512 most = lowest;
#pragma GCC unroll 4
  for (int p = 0; p < kBlockPages; ++p) {
    const int left = visible - p * kTokensPerPage;
    mask[p] = left >= 16  ? static_cast<__mmask16>(0xffff)
              : left <= 0 ? static_cast<__mmask16>(0)
                          : static_cast<__mmask16>((1u << left) - 1u);
    s[p] = _mm512_mul_ps(_mm512_load_ps(scores + p * kTokensPerPage), _mm512_set1_ps(scale));
    if (k_scales != nullptr && mask[p] != 0) {
      s[p] = _mm512_mul_ps(s[p], _mm512_loadu_ps(k_scales[p]));
    }
    s[p] = _mm512_mask_mov_ps(lowest, mask[p], s[p]);
    most = _mm512_max_ps(most, s[p]);
  }
  const float block_largest = LargestOf(most);
  const float now = block_largest > largest ? block_largest : largest;
  const float keep =
      largest == now
          ? 1.0f
          : _mm512_cvtss_f32(Exp(_mm512_set1_ps(largest < -3e38f ? -200.0f : largest - now)));
  const __m512 shift = _mm512_set1_ps(now);
  __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (int p = 0; p < kBlockPages; ++p) {
    __m512 w = _mm512_maskz_mov_ps(mask[p], Exp(_mm512_sub_ps(s[p], shift)));
    sum = _mm512_add_ps(sum, w);
    if (v_scales != nullptr && mask[p] != 0) {
      w = _mm512_mul_ps(w, _mm512_loadu_ps(v_scales[p]));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + p * kTokensPerPage), ToBf16(w));
  }
  largest = now;
  total = __builtin_fmaf(total, keep, SumOf(sum));
  return keep;
}

constexpr int kLargestDim = 576;  // of DeepSeek's latent keys; states of more would crowd out L2

struct alignas(64) Workspace {
  std::uint16_t q[kLargestDim / 32 * kTileRows * 32];
  float scores[kTileRows * kBlockTokens];
  std::uint16_t weights[kTileRows * kBlockTokens];
  float sums[kTileRows * 4 * 16];
  std::uint16_t k[kBlockPages][kLargestDim * kTokensPerPage];  // INT8 pages as BF16
  std::uint16_t v[kBlockPages][kLargestDim * kTokensPerPage];
};

void AttendSegmentBf16(const AttentionTile& tile, int segment, float* state) {
  const KvLayout& layout = *tile.kv.layout;
  const bool is_int8 = layout.type == KvType::kInt8;
  const int key_dims = layout.padded_dim;
  const int dims = layout.padded_value_dim;
  const int steps = key_dims / 32;
  float* largest = state;
  float* total = state + kTileRows;
  float* out = state + 2 * kTileRows;
  for (int r = 0; r < kTileRows; ++r) {
    largest[r] = -__builtin_inff();
    total[r] = 0.0f;
  }
  for (int i = 0; i < kTileRows * dims; i += 16) _mm512_storeu_ps(out + i, _mm512_setzero_ps());

  Workspace work;
  Products products;
  RoundQueries(tile, steps, work.q);
  const int first = segment * kSegmentTokens;
  const int past =
      first + kSegmentTokens < tile.most_tokens ? first + kSegmentTokens : tile.most_tokens;
  for (int block = first; block < past; block += kBlockTokens) {
    const int wanted = (past - block + kTokensPerPage - 1) / kTokensPerPage;
    const int pages = wanted < kBlockPages ? wanted : kBlockPages;
    const std::uint8_t* k[kBlockPages];
    const std::uint8_t* v[kBlockPages];
    const float* k_scales[kBlockPages] = {};
    const float* v_scales[kBlockPages] = {};
    for (int p = 0; p < pages; ++p) {
      k[p] = tile.kv.base + ToInt(tile.pages[block / kTokensPerPage + p]) * layout.page_bytes;
      v[p] = layout.values_in_keys ? k[p] : k[p] + layout.part_bytes + layout.scale_bytes;
      if (is_int8) {
        k_scales[p] = reinterpret_cast<const float*>(k[p] + layout.part_bytes);
        v_scales[p] = reinterpret_cast<const float*>(v[p] + layout.part_bytes);
        BytesToBf16(k[p], key_dims * kTokensPerPage, work.k[p]);
        k[p] = reinterpret_cast<const std::uint8_t*>(work.k[p]);
        if (!layout.values_in_keys) BytesToBf16(v[p], dims * kTokensPerPage, work.v[p]);
      }
      if (layout.values_in_keys) KeysToValues(k[p], dims, work.v[p]);
      if (is_int8 || layout.values_in_keys) v[p] = reinterpret_cast<const std::uint8_t*>(work.v[p]);
    }
    products.Scores(work.q, k, pages, steps, tile.rows, work.scores);
    float keep[kTileRows];
    for (int r = 0; r < tile.rows; ++r) {
      const int seen = tile.tokens[r] - block;
      const int visible = seen < pages * kTokensPerPage ? seen : pages * kTokensPerPage;
      keep[r] = RowWeights(work.scores + r * kBlockTokens, visible, tile.scale,
                           is_int8 ? k_scales : nullptr, is_int8 ? v_scales : nullptr, largest[r],
                           total[r], work.weights + r * kBlockTokens);
    }
    for (int t = 0; t < dims / 16;) {
      const int width = dims / 16 - t >= 4 ? 4 : 2;
      products.Values(work.weights, v, pages, dims, t, width, tile.rows, work.sums);
      for (int r = 0; r < tile.rows; ++r) {
        const __m512 factor = _mm512_set1_ps(keep[r]);
        for (int j = 0; j < width; ++j) {
          float* to = out + r * dims + (t + j) * 16;
          const __m512 sum = _mm512_load_ps(work.sums + (r * 4 + j) * 16);
          _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_loadu_ps(to), factor, sum));
        }
      }
      t += width;
    }
  }
}

}  // namespace

void AttendSegment(const AttentionTile& tile, int segment, float* state) {
  if (tile.kv.layout->type == KvType::kF32 || tile.kv.layout->padded_dim > kLargestDim) {
    avx512::AttendSegmentGeneric(tile, segment, state);
  } else {
    AttendSegmentBf16(tile, segment, state);
  }
}

}  // namespace tare::kernels::TARE_KERNELS_NAMESPACE
