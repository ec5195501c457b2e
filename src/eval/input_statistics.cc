#include "eval/input_statistics.h"

#include <algorithm>
#include <cmath>

#include "kernels/kv_pages.h"

namespace tare::eval {
namespace {

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

InputCollector::InputCollector(std::int64_t text_rows, std::int64_t sample_rows)
    : every_(std::max<std::int64_t>(1, text_rows / std::max<std::int64_t>(1, sample_rows))) {}

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
  for (std::size_t row = 0; row < x.size() / width; ++row) {
    const float* values = x.data() + row * width;
    for (std::size_t i = 0; i < width; ++i) {
      const double value = values[i];
      seen.magnitude_sum[i] += std::fabs(value);
      seen.square_sum[i] += value * value;
    }
    if (seen.rows % every_ == 0) {
      seen.sample.insert(seen.sample.end(), values, values + width);
      ++seen.sample_rows;
    }
    ++seen.rows;
  }
}

Status ReadInWindows(model::LanguageModel& model, std::span<const TokenId> text, int window,
                     const std::function<void(double fraction)>& progress) {
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
