// Attention with AVX-512's BF16 dot products; see attention_bf16-inl.h.
#if defined(__x86_64__)
#define TARE_KERNELS_NAMESPACE avx512
#include "kernels/avx512-inl.h"
#include "kernels/kernel_functions.h"

namespace tare::kernels::avx512 {
namespace {

struct Products {
  void Scores(const std::uint16_t* q, const std::uint8_t* const* k, int pages, int steps, int rows,
              float* scores) const {
    for (int r = 0; r < rows; ++r) {
      __m512 acc[4][2];  // two chains a page
      for (auto& pair : acc) pair[0] = pair[1] = _mm512_setzero_ps();
      for (int step = 0; step < steps; ++step) {
        const std::uint16_t* row = q + (step * 16 + r) * 32;
        for (int line = 0; line < 16; line += 2) {
          const auto q0 = (__m512bh)BroadcastPair(row + 2 * line);
          const auto q1 = (__m512bh)BroadcastPair(row + 2 * line + 2);
          for (int p = 0; p < pages; ++p) {
            const std::uint8_t* at = k[p] + (step * 16 + line) * kLineBytes;
            acc[p][0] = _mm512_dpbf16_ps(acc[p][0], (__m512bh)_mm512_load_si512(at), q0);
            acc[p][1] =
                _mm512_dpbf16_ps(acc[p][1], (__m512bh)_mm512_load_si512(at + kLineBytes), q1);
          }
        }
      }
      for (int p = 0; p < pages; ++p) {
        _mm512_store_ps(scores + r * 64 + p * 16, _mm512_add_ps(acc[p][0], acc[p][1]));
      }
    }
  }

  void Values(const std::uint16_t* weights, const std::uint8_t* const* v, int pages, int dims,
              int first_tile, int width, int rows, float* sums) const {
    for (int r = 0; r < rows; ++r) {
      __m512 acc[4];
      for (auto& sum : acc) sum = _mm512_setzero_ps();
      for (int p = 0; p < pages; ++p) {
        for (int pair = 0; pair < 8; ++pair) {
          const auto w = (__m512bh)BroadcastPair(weights + r * 64 + p * 16 + 2 * pair);
          const std::uint8_t* at = v[p] + (pair * dims + first_tile * 16) * 4;
          for (int j = 0; j < width; ++j) {
            acc[j] = _mm512_dpbf16_ps(acc[j], (__m512bh)_mm512_load_si512(at + j * kLineBytes), w);
          }
        }
      }
      for (int j = 0; j < width; ++j) _mm512_store_ps(sums + (r * 4 + j) * 16, acc[j]);
    }
  }
};

}  // namespace
}  // namespace tare::kernels::avx512

#include "kernels/attention_bf16-inl.h"

#endif  // __x86_64__
