// What a precision costs in quality: perplexity on a text, and the divergence of a model's
// next-token distributions from a wider reference's on the same text.
//
// Perplexity is exp of the mean negative log-likelihood per token (Jelinek et al. 1977). The text
// is cut into windows that overlap by half; a token is scored once, with at least half a window
// before it (but for the first window, which scores everything after its first token). Divergence
// is KL(reference || model) in nats, per scored token. Means carry a standard error over windows,
// since tokens of one window are not independent.
//
// Thread safety: none of its own; the models' pools are used by one call at a time.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/types.h"
#include "model/language_model.h"

namespace tare::eval {

struct PerplexityOptions {
  int window = 512;  // tokens; at least 2, at most the model's context length
  kernels::KvType kv_type = kernels::KvType::kF32;
  std::function<void(double fraction)> progress;  // may be empty
};

struct MeanWithError {
  double mean = 0;
  std::optional<double> standard_error;  // over windows; a single one shows no scatter
};

struct Divergence {
  MeanWithError kl;           // nats per token
  double kl_p99 = 0;          // nats; over tokens
  double top1_agreement = 0;  // share of tokens where both rank the same token first
};

struct PerplexityResult {
  std::size_t scored_tokens = 0;
  MeanWithError nll;  // nats per token
  double perplexity = 0;
  // exp(nll mean -/+ 1.96 standard errors).
  std::optional<std::pair<double, double>> interval95;
  std::optional<Divergence> divergence;  // when a reference was given
};

// Fails unless every token is one of the model's: a tokenizer from another model gives others.
Status CheckTokens(const model::LanguageModel& model, std::span<const TokenId> text);

// Fails when the text has fewer than two tokens, the window is impossible, or the vocabularies
// differ.
Result<PerplexityResult> MeasurePerplexity(model::LanguageModel& model,
                                           model::LanguageModel* reference,
                                           std::span<const TokenId> text,
                                           const PerplexityOptions& options);

// "0.01234 +/- 0.00056", the half width of the 95 % interval; without one the mean alone.
std::string MeanText(const MeanWithError& value);
// {"mean", "standard_error"}; null where there is none.
nlohmann::json ToJson(const MeanWithError& value);
// Why there is no interval, as a line; empty when there is one.
std::string WhyNoInterval(const PerplexityResult& result);

}  // namespace tare::eval
