// A very small language model for the engine's tests: one layer of uniform attention, whose next
// token depends on every token before it and on nothing else, read back from real KV pages.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/thread_pool.h"
#include "model/language_model.h"

namespace tare::engine {

class FakeModel final : public model::LanguageModel {
 public:
  static constexpr int kDim = 16;

  explicit FakeModel(int context_length = 256, int vocab = 61) : pool_(1) {
    config_.family = "fake";
    config_.name = "fake";
    config_.layers = config_.heads = config_.kv_heads = 1;
    config_.hidden = config_.head_dim = kDim;
    config_.vocab = vocab;
    config_.context_length = context_length;
  }

  const model::ModelConfig& config() const override { return config_; }
  std::size_t weight_bytes() const override { return 0; }
  kernels::WeightType weight_type() const override { return kernels::WeightType::kF32; }
  kernels::KvShape kv_shape(kernels::KvType type) const override { return {1, 1, kDim, type}; }

  void Forward(const model::ForwardInput& input, kernels::KvPages& kv,
               std::span<float> logits) override {
    if (throws) throw std::runtime_error("out of order");
    const std::size_t rows = input.tokens.size();
    // Keys and queries are zero, so attention is the mean of all values so far.
    std::vector<float> zero(rows * kDim, 0.0f), value(rows * kDim), out(rows * kDim);
    for (const kernels::SequenceRows& s : input.sequences) {
      for (int i = 0; i < s.num_rows; ++i) {
        const auto row = static_cast<std::size_t>(s.first_row + i);
        Value(input.tokens[row], s.start + i, &value[row * kDim]);
      }
    }
    kv.Write(0, input.sequences, zero.data(), value.data(), pool_);
    kernels::Attention(kv, 0, 1, 1.0f, input.sequences, zero.data(), out.data(), pool_);
    for (std::size_t i = 0; i < input.logit_rows.size(); ++i) {
      const auto vocab = static_cast<std::size_t>(config_.vocab);
      Logits(&out[static_cast<std::size_t>(input.logit_rows[i]) * kDim],
             logits.subspan(i * vocab, vocab));
    }
  }

  // The greedy continuation, computed without pages.
  std::vector<TokenId> Continue(std::vector<TokenId> tokens, int count) const {
    std::vector<TokenId> answer;
    while (static_cast<int>(answer.size()) < count) {
      std::vector<double> sum(kDim, 0.0);
      std::vector<float> v(kDim), mean(kDim), logits(static_cast<std::size_t>(config_.vocab));
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        Value(tokens[i], static_cast<int>(i), v.data());
        for (int d = 0; d < kDim; ++d)
          sum[static_cast<std::size_t>(d)] += v[static_cast<std::size_t>(d)];
      }
      for (int d = 0; d < kDim; ++d) {
        mean[static_cast<std::size_t>(d)] = static_cast<float>(sum[static_cast<std::size_t>(d)] /
                                                               static_cast<double>(tokens.size()));
      }
      Logits(mean.data(), logits);
      std::size_t best = 0;
      for (std::size_t t = 1; t < logits.size(); ++t) {
        if (logits[t] > logits[best]) best = t;
      }
      answer.push_back(TokenId{static_cast<std::int32_t>(best)});
      tokens.push_back(answer.back());
    }
    return answer;
  }

  bool throws = false;
  bool damaged = false;

 private:
  static float Noise(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-23f - 1.0f;
  }
  static void Value(TokenId token, int position, float* v) {
    for (int d = 0; d < kDim; ++d) {
      v[d] = Noise(static_cast<std::uint64_t>(ToInt(token)) * 7919 +
                   static_cast<std::uint64_t>(position) * 104729 + static_cast<std::uint64_t>(d));
    }
  }
  void Logits(const float* mean, std::span<float> logits) const {
    for (std::size_t t = 0; t < logits.size(); ++t) {
      double sum = 0.0;
      for (int d = 0; d < kDim; ++d)
        sum += mean[d] * Noise(t * 31 + static_cast<std::uint64_t>(d) + 1000000);
      logits[t] = damaged ? NAN : static_cast<float>(20.0 * sum);
    }
  }

  model::ModelConfig config_;
  ThreadPool pool_;
};

}  // namespace tare::engine
