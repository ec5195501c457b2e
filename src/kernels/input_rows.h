// Matmul inputs in the form the kernels of one weight type read (packed_layout.h), in blocks of 16
// rows. Rows are converted one by one, so that whoever fills it decides how they are shared out.
//
// Thread safety: distinct rows may be set from distinct threads after Reserve.
#pragma once

#include <cstdint>

#include "kernels/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "kernels/packed_layout.h"

namespace tare::kernels {

class InputRows {
 public:
  // Makes room for `blocks` blocks of rows of `cols` floats; earlier contents are lost.
  void Reserve(WeightType type, std::int64_t cols, std::int64_t blocks);
  // Converts x[cols] into row `slot` (0..15) of a block.
  void Set(std::int64_t block, int slot, const float* x) const;
  // `rows` rows from the beginning of `block` on, as a kernel's input.
  ActivationCells At(std::int64_t block, std::int64_t rows) const;

 private:
  enum class Form { kFloats, kBf16, kCodes };
  static Form FormFor(WeightType type);
  CodeRows CodesOf(std::int64_t block) const;

  Form form_ = Form::kFloats;
  std::int64_t cols_ = 0;
  std::int64_t cells_ = 0;  // of a block
  AlignedBuffer memory_;
  float* floats_ = nullptr;
  std::uint16_t* halves_ = nullptr;
  CodeRows codes_{};
};

// The kernel that multiplies with weights of `type`.
KernelTable::MatMulPanels KernelFor(WeightType type);

}  // namespace tare::kernels
