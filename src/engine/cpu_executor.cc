#include "engine/cpu_executor.h"

#include <algorithm>
#include <numeric>

namespace tare::engine {

std::size_t PageBytes(const kernels::KvShape& shape) {
  return kernels::KvBytesPerToken(shape) * kernels::kTokensPerPage;
}

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::Create(model::LanguageModel& model,
                                                         kernels::KvType kv_type,
                                                         std::uint32_t pages, const Clock& clock) {
  TARE_TRY(kernels::KvPages kv, kernels::KvPages::Create(model.kv_shape(kv_type), pages));
  return std::unique_ptr<CpuExecutor>(new CpuExecutor(model, std::move(kv), clock));
}

CpuExecutor::CpuExecutor(model::LanguageModel& model, kernels::KvPages kv, const Clock& clock)
    : model_(model), kv_(std::move(kv)), clock_(clock), page_bytes_(PageBytes(kv_.shape())) {}

Result<StepResult> CpuExecutor::Run(const StepPlan& plan) {
  const Nanos begin = clock_.Now();
  for (const PageCopy& copy : plan.copies) kv_.Copy(copy.from, copy.to);
  StepResult result;
  const Nanos copied = plan.discarded.empty() ? Nanos{} : clock_.Now();
  for (std::size_t i = 0; i < plan.discarded.size();) {
    // Neighbours at once: whole huge pages are given back whole.
    const std::uint32_t first = ToInt(plan.discarded[i]);
    std::uint32_t count = 1;
    while (i + count < plan.discarded.size() && ToInt(plan.discarded[i + count]) == first + count) {
      ++count;
    }
    kv_.Discard(PageId{first}, count);
    i += count;
  }
  const Nanos ready = clock_.Now();
  result.returning = plan.discarded.empty() ? Nanos{} : ready - copied;
  result.copying = ready - begin - result.returning;
  sequences_.clear();
  logit_rows_.clear();
  adapters_.clear();
  for (const PlannedSlice& slice : plan.slices) {
    kernels::SequenceRows rows;
    rows.first_row = static_cast<int>(slice.first_token);
    rows.num_rows = static_cast<int>(slice.num_tokens);
    rows.start = static_cast<int>(slice.start);
    rows.rotation = static_cast<int>(slice.rotation);
    rows.pages = std::span(plan.page_table).subspan(slice.first_page, slice.num_pages);
    sequences_.push_back(rows);
    adapters_.push_back(slice.adapter);
    const int past = rows.first_row + rows.num_rows;
    for (int row = past - static_cast<int>(slice.logit_rows()); row < past; ++row) {
      logit_rows_.push_back(row);
    }
  }
  result.vocab = static_cast<std::uint32_t>(model_.config().vocab);
  const std::size_t size = logit_rows_.size() * result.vocab;
  if (logits_.size() < size) logits_.resize(size);
  if (!sequences_.empty()) {
    model_.Forward({plan.tokens, sequences_, logit_rows_, adapters_}, kv_,
                   std::span(logits_).first(size));
  }
  result.logits = std::span(logits_).first(size);
  result.elapsed = clock_.Now() - begin;
  return result;
}

CpuExecutor::WarmUpTimes CpuExecutor::WarmUp(std::uint32_t pages, int rows) {
  WarmUpTimes times;
  pages = std::min(pages, kv_.pages());
  const Nanos begin = clock_.Now();
  for (std::uint32_t page = 1; page < pages; ++page) kv_.Copy(PageId{0}, PageId{page});
  times.touch_pages = clock_.Now() - begin;
  times.touched_bytes = std::size_t{pages} * page_bytes_;
  times.huge_bytes = std::min(kv_.HugePageBytes(), times.touched_bytes);

  StepPlan plan;
  const std::size_t most = std::size_t{kv_.pages()} * kernels::kTokensPerPage;
  plan.tokens.assign(std::min(static_cast<std::size_t>(std::max(rows, 1)), most), TokenId{0});
  plan.page_table.resize((plan.tokens.size() + kernels::kTokensPerPage - 1) /
                         kernels::kTokensPerPage);
  for (std::size_t i = 0; i < plan.page_table.size(); ++i) {
    plan.page_table[i] = PageId{static_cast<std::uint32_t>(i)};
  }
  PlannedSlice slice;
  slice.num_tokens = static_cast<std::uint32_t>(plan.tokens.size());
  slice.num_pages = static_cast<std::uint32_t>(plan.page_table.size());
  slice.wants_logits = true;
  plan.slices = {slice};
  const Nanos computing = clock_.Now();
  (void)Run(plan);
  // One row takes other kernels than many.
  plan.tokens.resize(1);
  plan.slices[0].num_tokens = 1;
  plan.slices[0].num_pages = 1;
  (void)Run(plan);
  times.warm_kernels = clock_.Now() - computing;
  model_.ResetExpertUse();

  if (pages >= 2) {
    // The slower of a few: the figures limit how long compaction may hold up a step.
    const PageId last{pages - 1};
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Nanos start = clock_.Now();
      kv_.Copy(PageId{0}, last);
      const Nanos copied = clock_.Now();
      kv_.Discard(last);
      times.copy_page = std::max(times.copy_page, copied - start);
      times.return_page = std::max(times.return_page, clock_.Now() - copied);
    }
    kv_.Copy(PageId{0}, last);
  }
  return times;
}

}  // namespace tare::engine
