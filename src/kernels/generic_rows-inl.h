// Row-wise kernels as loops over lanes; the second half of generic_kernels-inl.h.

namespace tare::kernels::TARE_KERNELS_NAMESPACE {
namespace {

// Lanes are summed apart and then in a fixed tree, so that every set adds in the same order.
void RmsNormRow(float* x, const float* delta, const float* weight, float epsilon, std::int64_t cols,
                float* out) {
  if (delta != nullptr) {
    for (std::int64_t i = 0; i < cols; ++i) x[i] += delta[i];
  }
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = MultiplyAdd(x[i + j], x[i + j], lanes[j]);
  }
  for (int j = 0; i < cols; ++i, ++j) lanes[j] = MultiplyAdd(x[i], x[i], lanes[j]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  const float inverse = 1.0f / __builtin_sqrtf(lanes[0] / static_cast<float>(cols) + epsilon);
  for (std::int64_t k = 0; k < cols; ++k) out[k] = x[k] * inverse * weight[k];
}

// silu(g) = g / (1 + e^-g), by way of e^-|g| which cannot overflow.
void SiluMultiplyRow(const float* gate, const float* up, std::int64_t cols, float* out) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const float g = gate[i];
    const float e = ExpOfNegative(-__builtin_fabsf(g));
    out[i] = g * (g < 0.0f ? e : 1.0f) / (1.0f + e) * up[i];
  }
}

// Rows are added in the order given, each element for itself.
void WeightedSumRow(const float* const* rows, const float* weights, int count, std::int64_t cols,
                    bool add, float* out) {
  constexpr std::int64_t kStep = 4 * kLanes;  // sums that stay in registers
  for (std::int64_t first = 0; first < cols; first += kStep) {
    const std::int64_t left = cols - first;
    float sums[kStep] = {};
    if (left >= kStep) {
      if (add) {
        for (int i = 0; i < kStep; ++i) sums[i] = out[first + i];
      }
      for (int r = 0; r < count; ++r) {
        const float* row = rows[r] + first;
        for (int i = 0; i < kStep; ++i) sums[i] = MultiplyAdd(weights[r], row[i], sums[i]);
      }
      for (int i = 0; i < kStep; ++i) out[first + i] = sums[i];
    } else {
      for (std::int64_t i = first; i < cols; ++i) {
        float sum = add ? out[i] : 0.0f;
        for (int r = 0; r < count; ++r) sum = MultiplyAdd(weights[r], rows[r][i], sum);
        out[i] = sum;
      }
    }
  }
}

void RopeNeighbours(float* head, const float* angles, int frequencies) {
  for (int i = 0; i < frequencies; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    const float c = angles[2 * i], s = angles[2 * i + 1];
    head[2 * i] = a * c - b * s;
    head[2 * i + 1] = a * s + b * c;
  }
}

void RopeHalves(float* head, const float* angles, int frequencies) {
  for (int i = 0; i < frequencies; ++i) {
    const float a = head[i], b = head[i + frequencies];
    const float c = angles[2 * i], s = angles[2 * i + 1];
    head[i] = a * c - b * s;
    head[i + frequencies] = a * s + b * c;
  }
}

}  // namespace
}  // namespace tare::kernels::TARE_KERNELS_NAMESPACE
