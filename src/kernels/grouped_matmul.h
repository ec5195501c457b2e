// Products of several matrices, each with rows of its own, as one job: the experts of a
// mixture-of-experts layer, or the matrices that latent attention has for each head.
//
// Work is shared out over (matrix x strip of its output features), so a thread that is done with a
// small group goes on with another's; nothing is padded, and matrices without rows are not read. A
// row's results are bit-equal to MatMul's.
//
// Thread safety: as MatMul: used by the thread that owns the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/input_rows.h"
#include "kernels/matmul.h"

namespace tare::kernels {

struct MatMulGroup {
  const PackedMatrix* w = nullptr;  // all groups have one type and one number of columns
  std::int64_t rows = 0;
  float* y = nullptr;       // [rows, w->rows()]
  std::int64_t stride = 0;  // floats between rows of y; 0: w->rows()
};

class GroupedMatMul {
 public:
  // Where row `row` of a group's input is: [cols] floats. A source may instead write the row to
  // `scratch` and return that, which makes the step before part of this one. Called once per row,
  // from any thread of the pool.
  using Source = std::function<const float*(std::size_t group, std::int64_t row, float* scratch)>;

  void Run(std::span<const MatMulGroup> groups, const Source& source, ThreadPool& pool);

 private:
  struct Strip {
    std::uint32_t group = 0;
    std::int32_t first = 0;  // panels [first, past)
    std::int32_t past = 0;
  };

  InputRows input_;
  std::vector<std::int64_t> first_rows_;    // of each group
  std::vector<std::int64_t> first_blocks_;  // of each group, in input_
  std::vector<std::uint32_t> order_;        // of groups, most rows first
  std::vector<Strip> strips_;
};

}  // namespace tare::kernels
