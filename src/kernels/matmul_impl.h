// The insides of PackedMatrix and Activations, shared by the files that pack and multiply.
#pragma once

#include "kernels/aligned_buffer.h"
#include "kernels/input_rows.h"
#include "kernels/matmul.h"
#include "kernels/packed_layout.h"

namespace tare::kernels {

struct PackedMatrix::Impl {
  AlignedBuffer memory;  // empty when the bytes belong to `owner`
  std::shared_ptr<const void> owner;
  WeightCells cells;
  std::function<void(std::span<const float> x)> observer;  // or empty
};

struct Activations::Impl {
  ActivationCells cells;  // f32, rows and cols are set; other forms when first asked for
  bool has_bf16 = false;
  bool has_codes = false;
  InputRows bf16;
  InputRows codes;  // what integer weights multiply with

  // The input in the form `type` multiplies with; converts at most once per Set.
  ActivationCells In(WeightType type, ThreadPool& pool);
};

}  // namespace tare::kernels
