#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/kv_pages.h"

namespace tare::eval {
namespace {

// Rows per Forward: bounds the logits kept at once (rows * vocab floats) while keeping prefill
// wide.
constexpr int kRowsPerForward = 64;
// Standard errors to either side of a mean that hold 95 % of a normal distribution.
constexpr double k95 = 1.96;

// A model with KV pages for one window; Begin starts a window, Next gives logits of its next rows.
class WindowReader {
 public:
  static Result<WindowReader> Create(model::LanguageModel& model, int window,
                                     kernels::KvType kv_type) {
    const auto pages = static_cast<std::uint32_t>((window + kernels::kTokensPerPage - 1) /
                                                  kernels::kTokensPerPage);
    TARE_TRY(kernels::KvPages kv, kernels::KvPages::Create(model.kv_shape(kv_type), pages));
    return WindowReader(model, std::move(kv), pages);
  }

  // logits: [rows.size(), vocab] of the tokens at positions start, start + 1, ...
  void Forward(std::span<const TokenId> rows, int start, std::span<float> logits) {
    const kernels::SequenceRows sequence{0, static_cast<int>(rows.size()), start, page_table_};
    std::vector<int> logit_rows(rows.size());
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    model_->Forward({rows, {&sequence, 1}, logit_rows}, kv_, logits);
  }

 private:
  WindowReader(model::LanguageModel& model, kernels::KvPages kv, std::uint32_t pages)
      : model_(&model), kv_(std::move(kv)) {
    for (std::uint32_t page = 0; page < pages; ++page) page_table_.push_back(PageId{page});
  }

  model::LanguageModel* model_;
  kernels::KvPages kv_;
  std::vector<PageId> page_table_;
};

// log(sum(exp(logits))), stable for any finite input.
double LogSumExp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit - top));
  return static_cast<double>(top) + std::log(sum);
}

double KullbackLeibler(std::span<const float> reference, double reference_norm,
                       std::span<const float> logits, double norm) {
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_norm;
    sum += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - norm));
  }
  return std::max(sum, 0.0);  // rounding may leave a tiny negative
}

std::ptrdiff_t TopToken(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// Token-weighted mean of window sums, with the standard error of a ratio estimate over windows.
class WindowedMean {
 public:
  void AddWindow(double sum, std::size_t count) {
    sums_.push_back(sum);
    counts_.push_back(static_cast<double>(count));
  }
  MeanWithError Value() const {
    const double total = std::accumulate(counts_.begin(), counts_.end(), 0.0);
    const double mean = std::accumulate(sums_.begin(), sums_.end(), 0.0) / total;
    const auto n = static_cast<double>(sums_.size());
    if (n < 2) return {mean, std::nullopt};
    double squares = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const double residual = sums_[i] - mean * counts_[i];
      squares += residual * residual;
    }
    return {mean, std::sqrt(squares * n / (n - 1)) / total};
  }

 private:
  std::vector<double> sums_, counts_;
};

double Percentile99(std::vector<double> values) {
  const std::size_t at = std::min(values.size() - 1, values.size() * 99 / 100);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

Status CheckTokens(const model::LanguageModel& model, std::span<const TokenId> text) {
  const int vocab = model.config().vocab;
  for (const TokenId token : text) {
    if (ToInt(token) >= 0 && ToInt(token) < vocab) continue;
    return FailParam("text",
                     "the text has token {}, '{}' knows {} tokens: its tokenizer is another "
                     "model's; fetch the model again",
                     ToInt(token), model.config().name, vocab);
  }
  return {};
}

Result<PerplexityResult> MeasurePerplexity(model::LanguageModel& model,
                                           model::LanguageModel* reference,
                                           std::span<const TokenId> text,
                                           const PerplexityOptions& options) {
  const int context = model.config().context_length;
  if (options.window < 2 || options.window > context) {
    return FailParam("window", "the window is {} tokens; this model takes 2 to {}", options.window,
                     context);
  }
  if (text.size() < 2) {
    return FailParam("text", "the text has {} tokens; at least 2 are needed to predict one",
                     text.size());
  }
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  if (reference != nullptr && reference->config().vocab != model.config().vocab) {
    return FailParam("reference", "the reference has {} vocabulary entries, the model {}",
                     reference->config().vocab, vocab);
  }

  TARE_RETURN_IF_ERROR(CheckTokens(model, text));

  TARE_TRY(WindowReader reader, WindowReader::Create(model, options.window, options.kv_type));
  std::optional<WindowReader> reference_reader;
  if (reference != nullptr) {
    TARE_TRY(reference_reader, WindowReader::Create(*reference, options.window, options.kv_type));
  }
  std::vector<float> logits(kRowsPerForward * vocab);
  std::vector<float> reference_logits(reference != nullptr ? logits.size() : 0);

  WindowedMean nll, kl;
  std::vector<double> token_kl;
  std::size_t agreements = 0;
  std::size_t scored_total = 0;

  const auto window = static_cast<std::size_t>(options.window);
  const std::size_t stride = std::max<std::size_t>(1, window / 2);
  std::size_t next_target = 1;  // first token of the text not scored yet
  for (std::size_t begin = 0; next_target < text.size(); begin += stride) {
    const std::size_t end = std::min(begin + window, text.size());
    double window_nll = 0, window_kl = 0;
    std::size_t window_count = 0;
    // The last token of the window predicts outside it, so it needs no forward pass.
    for (std::size_t row = begin; row + 1 < end; row += kRowsPerForward) {
      const std::size_t rows = std::min<std::size_t>(kRowsPerForward, end - 1 - row);
      const auto tokens = text.subspan(row, rows);
      const auto start = static_cast<int>(row - begin);
      reader.Forward(tokens, start, std::span(logits).first(rows * vocab));
      if (reference_reader) {
        reference_reader->Forward(tokens, start, std::span(reference_logits).first(rows * vocab));
      }
      for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t target = row + i + 1;
        if (target < next_target) continue;
        const auto mine = std::span<const float>(logits).subspan(i * vocab, vocab);
        const double norm = LogSumExp(mine);
        window_nll +=
            norm - static_cast<double>(mine[static_cast<std::size_t>(ToInt(text[target]))]);
        if (reference_reader) {
          const auto theirs = std::span<const float>(reference_logits).subspan(i * vocab, vocab);
          const double divergence = KullbackLeibler(theirs, LogSumExp(theirs), mine, norm);
          window_kl += divergence;
          token_kl.push_back(divergence);
          agreements += TopToken(theirs) == TopToken(mine) ? 1 : 0;
        }
        ++window_count;
      }
    }
    nll.AddWindow(window_nll, window_count);
    kl.AddWindow(window_kl, window_count);
    scored_total += window_count;
    next_target = end;
    if (options.progress) {
      options.progress(static_cast<double>(next_target) / static_cast<double>(text.size()));
    }
  }

  PerplexityResult result;
  result.scored_tokens = scored_total;
  result.nll = nll.Value();
  result.perplexity = std::exp(result.nll.mean);
  if (const auto error = result.nll.standard_error) {
    result.interval95 = {std::exp(result.nll.mean - k95 * *error),
                         std::exp(result.nll.mean + k95 * *error)};
  }
  if (reference != nullptr) {
    result.divergence =
        Divergence{kl.Value(), Percentile99(token_kl),
                   static_cast<double>(agreements) / static_cast<double>(scored_total)};
  }
  return result;
}

std::string MeanText(const MeanWithError& value) {
  if (!value.standard_error) return fmt::format("{:.5f}", value.mean);
  return fmt::format("{:.5f} +/- {:.5f}", value.mean, k95 * *value.standard_error);
}

nlohmann::json ToJson(const MeanWithError& value) {
  return {{"mean", value.mean},
          {"standard_error",
           value.standard_error ? nlohmann::json(*value.standard_error) : nlohmann::json(nullptr)}};
}

std::string WhyNoInterval(const PerplexityResult& result) {
  if (result.interval95) return "";
  return "no intervals: the text fills one window only, and the error is seen from how windows "
         "differ; give a longer text or a shorter window\n";
}

}  // namespace tare::eval
