#include "model/lora_batch.h"

#include <algorithm>

namespace tare::model {
namespace {

// Rows worth waking another thread for: adding moves a few hundred floats each.
constexpr std::size_t kRowsPerShare = 16;

// What groups of one job must have in common.
auto KindOf(const LoraPart& part) { return std::pair(part.b->type(), part.b->cols()); }

void Grow(std::vector<float>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer = std::vector<float>(size);
}

}  // namespace

bool LoraBatch::Begin(const ForwardInput& input) {
  count_ = 0;
  for (std::size_t i = 0; i < input.adapters.size(); ++i) {
    const LoraAdapter* adapter = input.adapters[i];
    if (adapter == nullptr) continue;
    const auto known =
        std::find_if(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [&](const Member& m) { return m.adapter == adapter; });
    const auto at = static_cast<std::size_t>(known - members_.begin());
    if (at == count_) {
      if (count_ == members_.size()) members_.emplace_back();
      members_[count_].adapter = adapter;
      members_[count_].rows.clear();
      ++count_;
    }
    const kernels::SequenceRows& sequence = input.sequences[i];
    for (int row = 0; row < sequence.num_rows; ++row) {
      members_[at].rows.push_back(sequence.first_row + row);
    }
  }
  return count_ > 0;
}

void LoraBatch::Add(int layer, LoraSite site, const float* x, std::int64_t x_stride, float* y,
                    std::int64_t y_stride, ThreadPool& pool) {
  uses_.clear();
  tasks_.clear();
  std::size_t shrunk = 0, grown = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const Member& member = members_[i];
    for (const LoraMatrices& matrices : member.adapter->At(layer, site)) {
      uses_.push_back({&member, &matrices});
      const auto width = static_cast<std::size_t>(matrices.a->rows());
      for (const LoraPart& part : matrices.parts) {
        tasks_.push_back({&member, &part, shrunk + static_cast<std::size_t>(part.first), width, 0});
      }
      shrunk += width * member.rows.size();
    }
  }
  if (tasks_.empty()) return;
  Grow(shrunk_, shrunk);

  // All adapters' A at once.
  groups_.clear();
  float* to = shrunk_.data();
  for (const Use& use : uses_) {
    const std::size_t rows = use.member->rows.size();
    groups_.push_back({use.matrices->a.get(), static_cast<std::int64_t>(rows), to, 0});
    to += rows * static_cast<std::size_t>(use.matrices->a->rows());
  }
  grouped_.Run(
      groups_,
      [&](std::size_t group, std::int64_t row, float*) {
        const Use& use = uses_[group];
        return x + use.member->rows[static_cast<std::size_t>(row)] * x_stride + use.matrices->input;
      },
      pool);

  // Then all Bs of one rank at once.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const Task& a, const Task& b) { return KindOf(*a.part) < KindOf(*b.part); });
  first_rows_.assign(1, 0);
  for (Task& task : tasks_) {
    task.to = grown;
    grown += task.member->rows.size() * static_cast<std::size_t>(task.part->b->rows());
    first_rows_.push_back(first_rows_.back() + task.member->rows.size());
  }
  Grow(grown_, grown);
  for (std::size_t begin = 0; begin < tasks_.size();) {
    std::size_t end = begin;
    groups_.clear();
    for (; end < tasks_.size() && KindOf(*tasks_[end].part) == KindOf(*tasks_[begin].part); ++end) {
      const Task& task = tasks_[end];
      groups_.push_back({task.part->b.get(), static_cast<std::int64_t>(task.member->rows.size()),
                         grown_.data() + task.to, 0});
    }
    grouped_.Run(
        groups_,
        [&](std::size_t group, std::int64_t row, float*) {
          const Task& task = tasks_[begin + group];
          return shrunk_.data() + task.from + static_cast<std::size_t>(row) * task.width;
        },
        pool);
    begin = end;
  }

  // Different tasks of a row add to different columns.
  pool.ParallelFor(first_rows_.back(), kRowsPerShare, [&](std::size_t begin, std::size_t end) {
    const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), begin);
    auto at = static_cast<std::size_t>(after - first_rows_.begin()) - 1;
    for (; begin < end; ++begin) {
      while (begin >= first_rows_[at + 1]) ++at;
      const Task& task = tasks_[at];
      const std::size_t row = begin - first_rows_[at];
      const auto outputs = static_cast<std::size_t>(task.part->b->rows());
      const float* from = grown_.data() + task.to + row * outputs;
      float* out =
          y + static_cast<std::int64_t>(task.member->rows[row]) * y_stride + task.part->column;
      for (std::size_t i = 0; i < outputs; ++i) out[i] += from[i];
    }
  });
}

}  // namespace tare::model
