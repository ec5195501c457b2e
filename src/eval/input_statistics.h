// What the linear layers of a model see while it reads a text: for each matrix the mean magnitude
// and square of every input, and a sample of whole inputs.
//
// Give Observer() to LoadOptions::observe, let the model read, then Stop. Matrices that are
// computed as one (q, k and v) are known by their names joined with '+'. Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "model/language_model.h"

namespace tare::eval {

struct InputStatistics {
  std::int64_t cols = 0;
  std::int64_t rows = 0;              // inputs seen
  std::vector<double> magnitude_sum;  // [cols]
  std::vector<double> square_sum;     // [cols]
  std::vector<float> sample;          // [sample_rows, cols], evenly over the text
  std::int64_t sample_rows = 0;

  std::vector<float> MeanMagnitudes() const;
  std::vector<float> MeanSquares() const;
};

class InputCollector {
 public:
  // Of a text of `text_rows` tokens, about `sample_rows` inputs are kept.
  InputCollector(std::int64_t text_rows, std::int64_t sample_rows);

  std::function<void(std::string_view name, std::span<const float> x, std::int64_t cols)>
  Observer();
  void Stop() { stopped_ = true; }

  // Null when no matrix of that name was used.
  const InputStatistics* Find(std::string_view name) const;

 private:
  void See(std::string_view name, std::span<const float> x, std::int64_t cols);

  std::int64_t every_ = 1;
  bool stopped_ = false;
  std::map<std::string, InputStatistics, std::less<>> matrices_;
};

// Lets `model` read the text in windows, without asking for logits. Progress in [0, 1].
Status ReadInWindows(model::LanguageModel& model, std::span<const TokenId> text, int window,
                     const std::function<void(double fraction)>& progress);

}  // namespace tare::eval
