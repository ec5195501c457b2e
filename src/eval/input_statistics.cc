#include "eval/input_statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eval/perplexity.h"
#include "kernels/kv_pages.h"

namespace tare::eval {
namespace {

// Drops every second input of a full sample.
void Thin(InputStatistics& seen) {
  const auto width = static_cast<std::ptrdiff_t>(seen.cols);
  const std::int64_t kept = (seen.sample_rows + 1) / 2;
  for (std::int64_t row = 1; row < kept; ++row) {
    std::copy_n(seen.sample.begin() + 2 * row * width, width, seen.sample.begin() + row * width);
  }
  seen.sample.resize(static_cast<std::size_t>(kept * width));
  seen.sample_rows = kept;
  seen.every *= 2;
}

std::vector<float> Means(const std::vector<double>& sums, std::int64_t rows) {
  std::vector<float> means;
  for (const double sum : sums) {
    means.push_back(static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(rows, 1))));
  }
  return means;
}

}  // namespace

std::vector<float> InputStatistics::MeanMagnitudes() const { return Means(magnitude_sum, rows); }
std::vector<float> InputStatistics::MeanSquares() const { return Means(square_sum, rows); }

InputCollector::InputCollector(std::int64_t samples, std::int64_t samples_of_expert)
    : samples_(samples), samples_of_expert_(samples_of_expert) {
  TARE_CHECK(samples > 0 && samples_of_expert > 0);
}

std::function<void(std::string_view, std::span<const float>, std::int64_t)>
InputCollector::Observer() {
  return [this](std::string_view name, std::span<const float> x, std::int64_t cols) {
    if (!stopped_) See(name, x, cols);
  };
}

const InputStatistics* InputCollector::Find(std::string_view name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? nullptr : &found->second;
}

void InputCollector::See(std::string_view name, std::span<const float> x, std::int64_t cols) {
  auto found = matrices_.find(name);
  if (found == matrices_.end()) {
    found = matrices_.emplace(std::string(name), InputStatistics{}).first;
    found->second.cols = cols;
    found->second.magnitude_sum.resize(static_cast<std::size_t>(cols));
    found->second.square_sum.resize(static_cast<std::size_t>(cols));
  }
  InputStatistics& seen = found->second;
  const auto width = static_cast<std::size_t>(cols);
  const std::int64_t most = name.ends_with(']') ? samples_of_expert_ : samples_;
  for (std::size_t row = 0; row < x.size() / width; ++row) {
    const float* values = x.data() + row * width;
    for (std::size_t i = 0; i < width; ++i) {
      const double value = values[i];
      seen.magnitude_sum[i] += std::fabs(value);
      seen.square_sum[i] += value * value;
    }
    if (seen.rows % seen.every == 0 && seen.sample_rows == most) Thin(seen);
    if (seen.rows % seen.every == 0) {
      seen.sample.insert(seen.sample.end(), values, values + width);
      ++seen.sample_rows;
    }
    ++seen.rows;
  }
}

Status ReadInWindows(model::LanguageModel& model, std::span<const TokenId> text, int window,
                     const std::function<void(double fraction)>& progress) {
  TARE_RETURN_IF_ERROR(CheckTokens(model, text));
  const auto size = static_cast<std::size_t>(std::min(window, model.config().context_length));
  const auto pages =
      static_cast<std::uint32_t>((size + kernels::kTokensPerPage - 1) / kernels::kTokensPerPage);
  TARE_TRY(kernels::KvPages kv,
           kernels::KvPages::Create(model.kv_shape(kernels::KvType::kF32), pages));
  std::vector<PageId> page_table;
  for (std::uint32_t page = 0; page < pages; ++page) page_table.push_back(PageId{page});
  const int last_row[] = {0};
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
  for (std::size_t begin = 0; begin < text.size(); begin += size) {
    const auto tokens = text.subspan(begin, std::min(size, text.size() - begin));
    const kernels::SequenceRows sequence{0, static_cast<int>(tokens.size()), 0, page_table};
    model.Forward({tokens, {&sequence, 1}, last_row}, kv, logits);
    if (progress) {
      progress(static_cast<double>(begin + tokens.size()) / static_cast<double>(text.size()));
    }
  }
  return {};
}

}  // namespace tare::eval
