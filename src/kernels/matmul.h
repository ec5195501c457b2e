// Matrix products against packed weights: y[m, n] = x[m, k] * W[n, k]^T.
//
// A PackedMatrix owns weights in the layout its kernels read. Activations holds one input of m rows
// and quantises it at most once per kind, so that q, k and v (or gate and up) share the work.
// A row's results are bit-equal whatever the number of rows beside it.
//
// Thread safety: PackedMatrix is immutable after Pack; Activations and MatMul belong to the thread
// that owns the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/tensor_view.h"

namespace tare::kernels {

// What a matrix computes with. kInt8: groups of 32, scale; kInt4: groups of 32, scale and minimum.
enum class WeightType { kF32, kBf16, kInt8, kInt4 };
const char* ToString(WeightType type);

// The type that holds `stored` with no or least loss: F32->F32, F16/BF16->BF16, Q8_0, Q5, Q6,
// IQ4_NL and MXFP4->INT8, Q4->INT4; codes of 4 and 8 bits->INT4 and INT8. docs/FORMATS.md says what
// is lost where.
WeightType NaturalType(StoredType stored);

// Which version of the packed bytes Pack makes. Bytes kept on disk are of use only to a program of
// the same version: raise it whenever Pack's bytes change (a test compares their hashes).
inline constexpr std::uint32_t kPackedLayoutVersion = 2;

// All that packed bytes need to be read.
struct PackedForm {
  WeightType type = WeightType::kF32;
  bool with_minimum = false;  // kInt4 only
  std::int64_t rows = 0;      // n, output features
  std::int64_t cols = 0;      // k, input features

  bool operator==(const PackedForm&) const = default;
};

class PackedMatrix {
 public:
  // Converts and packs, row blocks in parallel. Fails when a dimension cannot be packed.
  static Result<PackedMatrix> Pack(WeightType type, const TensorView& source, ThreadPool& pool);
  // The form Pack would give.
  static PackedForm FormOf(WeightType type, const TensorView& source);
  // Over bytes that Pack made (see data()), 64-byte aligned, kept alive by `owner`. Fails when
  // their number is not what `form` takes. The values are not checked; any are safe to compute
  // with.
  static Result<PackedMatrix> View(const PackedForm& form, std::span<const std::byte> data,
                                   std::shared_ptr<const void> owner);

  PackedMatrix();
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  WeightType type() const;
  std::int64_t rows() const;  // n, output features
  std::int64_t cols() const;  // k, input features
  std::size_t bytes() const;  // memory the packed weights take, scales included
  PackedForm form() const;
  std::span<const std::byte> data() const;

  // Calls `see` with every input [rows, cols] this matrix is multiplied with, before the product,
  // from the multiplying thread: for calibration, which needs to know what layers see.
  void Observe(std::function<void(std::span<const float> x)> see);

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// One matmul input [rows, cols], row-major floats owned by the caller.
class Activations {
 public:
  Activations();
  ~Activations();
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // Points at a new input and forgets earlier quantised forms; keeps their memory.
  void Set(const float* x, std::int64_t rows, std::int64_t cols);

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// y: [x.rows, w.rows], row-major with `stride` floats between rows (0: w.rows).
void MatMul(const PackedMatrix& w, Activations& x, float* y, std::int64_t stride, ThreadPool& pool);

}  // namespace tare::kernels
