// The adapters of one step: adds each row's own to the products of the base.
//
// Rows of one adapter are gathered, and all adapters' products are one job (grouped_matmul.h); the
// sum goes onto the base's product last. So a row's bits depend on its own adapter and input alone,
// and rows without an adapter are not touched.
//
// Ownership: refers to the adapters of the input. Thread safety: as MatMul.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/grouped_matmul.h"
#include "model/language_model.h"
#include "model/lora_adapter.h"

namespace tare::model {

class LoraBatch {
 public:
  // Takes in whose rows are whose. False when no row has an adapter.
  bool Begin(const ForwardInput& input);

  // y[row, ...] += B A x[row, ...] for the rows whose adapter has this product. x: [rows,
  // x_stride], y: [rows, y_stride].
  void Add(int layer, LoraSite site, const float* x, std::int64_t x_stride, float* y,
           std::int64_t y_stride, ThreadPool& pool);

 private:
  struct Member {
    const LoraAdapter* adapter = nullptr;
    std::vector<std::int32_t> rows;
  };
  // One product with As of one adapter.
  struct Use {
    const Member* member = nullptr;
    const LoraMatrices* matrices = nullptr;
  };
  // One linear layer of one adapter.
  struct Task {
    const Member* member = nullptr;
    const LoraPart* part = nullptr;
    std::size_t from = 0;   // in shrunk_, of its first row
    std::size_t width = 0;  // of a row there
    std::size_t to = 0;     // in grown_, of its first row
  };

  std::vector<Member> members_;  // keeps the memory of earlier steps
  std::size_t count_ = 0;        // of members_, this step's
  std::vector<Use> uses_;
  std::vector<kernels::MatMulGroup> groups_;
  std::vector<Task> tasks_;
  std::vector<std::size_t> first_rows_;  // of each task, counted over all
  std::vector<float> shrunk_;            // A x
  std::vector<float> grown_;             // B A x
  kernels::GroupedMatMul grouped_;
};

}  // namespace tare::model
