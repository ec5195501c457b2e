// What the linear layers of a model see while it reads a text: for each matrix the mean magnitude
// and square of every input, and a sample of whole inputs.
//
// Give Observer() to LoadOptions::observe, let the model read, then Stop. Matrices that are
// computed as one (q, k and v) are known by their names joined with '+', experts by their number
// behind that, "[3]". Thread safety: none.
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
  std::vector<float> sample;          // [sample_rows, cols]: every `every`-th input from the first
  std::int64_t sample_rows = 0;
  std::int64_t every = 1;

  std::vector<float> MeanMagnitudes() const;
  std::vector<float> MeanSquares() const;
};

class InputCollector {
 public:
  // Whole inputs that are kept, evenly over what a matrix sees: at most that many, and at least
  // half as many of a long text. Experts, of which there are hundreds in a layer, keep fewer each.
  explicit InputCollector(std::int64_t samples, std::int64_t samples_of_expert);

  std::function<void(std::string_view name, std::span<const float> x, std::int64_t cols)>
  Observer();
  void Stop() { stopped_ = true; }

  // Null when no matrix of that name was used.
  const InputStatistics* Find(std::string_view name) const;

 private:
  void See(std::string_view name, std::span<const float> x, std::int64_t cols);

  std::int64_t samples_;
  std::int64_t samples_of_expert_;
  bool stopped_ = false;
  std::map<std::string, InputStatistics, std::less<>> matrices_;
};

// Lets `model` read the text in windows, without asking for logits. Progress in [0, 1].
Status ReadInWindows(model::LanguageModel& model, std::span<const TokenId> text, int window,
                     const std::function<void(double fraction)>& progress);

}  // namespace tare::eval
