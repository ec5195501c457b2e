#include "kernels/grouped_matmul.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/matmul_impl.h"

namespace tare::kernels {
namespace {

// Strips a thread gets on average: enough that the last ones end together.
constexpr std::int64_t kStripsPerThread = 8;
// What a panel costs beyond its rows' products, in rows: its weights have to come from memory.
constexpr std::int64_t kPanelRows = 4;
// Panels that share a pass over the activations (matmul_*_amx.cc), and the least worth a strip.
constexpr std::int64_t kManyPanels = 16;
constexpr std::int64_t kFewPanels = 4;
constexpr std::size_t kRowsPerShare = 4;

std::int64_t RoundDown(std::int64_t value, std::int64_t step) { return value / step * step; }

float* ThreadScratch(std::int64_t floats) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < static_cast<std::size_t>(floats)) {
    scratch.resize(static_cast<std::size_t>(floats));
  }
  return scratch.data();
}

}  // namespace

void GroupedMatMul::Run(std::span<const MatMulGroup> groups, const Source& source,
                        ThreadPool& pool) {
  first_rows_.assign(1, 0);
  first_blocks_.clear();
  const PackedMatrix* like = nullptr;
  std::int64_t cost = 0, blocks = 0;
  for (const MatMulGroup& group : groups) {
    first_rows_.push_back(first_rows_.back() + group.rows);
    first_blocks_.push_back(blocks);
    blocks += (group.rows + kBlockRows - 1) / kBlockRows;
    if (group.rows == 0) continue;
    if (like == nullptr) like = group.w;
    TARE_CHECK(group.w->type() == like->type() && group.w->cols() == like->cols());
    cost += group.w->impl().cells.panels * (group.rows + kPanelRows);
  }
  if (like == nullptr) return;
  const std::int64_t cols = like->cols();
  input_.Reserve(like->type(), cols, blocks);
  pool.ParallelFor(
      static_cast<std::size_t>(first_rows_.back()), kRowsPerShare,
      [&](std::size_t begin, std::size_t end) {
        auto at = static_cast<std::int64_t>(begin);
        const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), at);
        auto group = static_cast<std::size_t>(after - first_rows_.begin()) - 1;
        for (; at < static_cast<std::int64_t>(end); ++at) {
          while (at >= first_rows_[group + 1]) ++group;
          const std::int64_t row = at - first_rows_[group];
          input_.Set(first_blocks_[group] + row / kBlockRows, static_cast<int>(row % kBlockRows),
                     source(group, row, ThreadScratch(cols)));
        }
      });

  // Groups of many rows first: the small ones even out the end.
  order_.resize(groups.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return groups[a].rows > groups[b].rows;
  });
  const std::int64_t share = cost / (kStripsPerThread * pool.size());
  strips_.clear();
  for (const std::uint32_t g : order_) {
    const MatMulGroup& group = groups[g];
    if (group.rows == 0) break;
    const std::int64_t panels = group.w->impl().cells.panels;
    std::int64_t step = std::max(share / (group.rows + kPanelRows), kFewPanels);
    step = RoundDown(step, step >= kManyPanels ? kManyPanels : kFewPanels);
    for (std::int64_t first = 0; first < panels; first += step) {
      strips_.push_back({g, static_cast<std::int32_t>(first),
                         static_cast<std::int32_t>(std::min(first + step, panels))});
    }
  }
  const KernelTable::MatMulPanels kernel = KernelFor(like->type());
  pool.ParallelFor(strips_.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t s = begin; s < end; ++s) {
      const Strip& strip = strips_[s];
      const MatMulGroup& group = groups[strip.group];
      const Output out{group.y, group.stride == 0 ? group.w->rows() : group.stride};
      kernel(group.w->impl().cells, input_.At(first_blocks_[strip.group], group.rows), out,
             strip.first, strip.past);
    }
  });
}

}  // namespace tare::kernels
