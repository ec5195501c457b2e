// A ring context on a real model and real text: far past the window, does it still predict as well
// as a window computed afresh?
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "base/files.h"
#include "base/test_model.h"
#include "engine/cpu_executor.h"
#include "engine/scheduler.h"
#include "model/gguf.h"
#include "model/load.h"
#include "model/text.h"

namespace tare::engine {
namespace {

constexpr int kWindow = 128;

double NegativeLogLikelihood(std::span<const float> logits, TokenId token) {
  float largest = logits[0];
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  return std::log(sum) + largest - logits[static_cast<std::size_t>(ToInt(token))];
}

// Of text[from, to), each token given what fits the window before it, computed from nothing.
double FreshLoss(model::LanguageModel& model, std::span<const TokenId> text, std::size_t from,
                 std::size_t to) {
  const SteadyClock clock;
  const std::uint32_t pages = kWindow / kernels::kTokensPerPage;
  auto kv = kernels::KvPages::Create(model.kv_shape(kernels::KvType::kBf16), pages);
  std::vector<PageId> table;
  for (std::uint32_t i = 0; i < pages; ++i) table.push_back(PageId{i});
  double loss = 0.0;
  constexpr std::size_t kStride = 32;
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<float> logits(kStride * vocab);
  for (std::size_t at = from; at < to; at += kStride) {
    const std::size_t begin = at + kStride - kWindow;
    kernels::SequenceRows rows;
    rows.num_rows = kWindow - 1;
    rows.pages = table;
    std::vector<int> wanted;
    for (std::size_t i = 0; i < kStride; ++i) {
      wanted.push_back(static_cast<int>(kWindow - kStride - 1 + i));
    }
    model.Forward({text.subspan(begin, kWindow - 1), {&rows, 1}, wanted}, *kv, logits);
    for (std::size_t i = 0; i < kStride; ++i) {
      loss += NegativeLogLikelihood(std::span(logits).subspan(i * vocab, vocab), text[at + i]);
    }
  }
  return loss / static_cast<double>(to - from);
}

TEST(LongContextTest, ARingPredictsAsWellAsAFreshWindow) {
  const auto path = FindTestModel();
  if (!path) GTEST_SKIP() << kTestModelMissing;
  auto file = model::GgufFile::Open(*path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ThreadPool pool(1);
  model::LoadOptions loading;
  loading.dtype = kernels::WeightType::kInt8;
  loading.pool = &pool;
  auto model = model::LoadModel(*file, loading);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  auto tokenizer = model::LoadText(*path);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto essay = ReadFile(TARE_SOURCE_DIR "/docs/ENGINE.md");
  ASSERT_TRUE(essay.has_value());
  const std::vector<TokenId> text = *(*tokenizer)->EncodePrompt(*essay);
  constexpr std::size_t kLength = 4 * kWindow;
  ASSERT_GE(text.size(), kLength);

  SchedulerOptions options;
  options.pool.pages = kWindow / kernels::kTokensPerPage + 2;  // a window and two pages: constant
  options.max_model_len = kWindow;
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 64;
  options.ring = true;
  auto scheduler = Scheduler::Create(options);
  ASSERT_TRUE(scheduler.has_value());
  const SteadyClock clock;
  auto executor = CpuExecutor::Create(**model, kernels::KvType::kBf16, options.pool.pages, clock);
  ASSERT_TRUE(executor.has_value());

  constexpr std::size_t kPrompt = kWindow / 2;
  SequenceSpec spec;
  spec.id = SequenceId{1};
  spec.prompt.assign(text.begin(), text.begin() + kPrompt);
  spec.max_new_tokens = static_cast<int>(kLength - kPrompt) + 1;
  spec.pinned_tokens = 20;
  ASSERT_TRUE(scheduler->Submit(spec, Nanos{}).has_value());
  // The text is forced on it token by token; the loss counts over the last two windows.
  double loss = 0.0;
  std::size_t next = kPrompt;
  while (next < kLength) {
    const StepPlan plan = scheduler->Plan(Nanos{});
    ASSERT_FALSE(plan.empty());
    auto result = (*executor)->Run(plan);
    ASSERT_TRUE(result.has_value());
    std::vector<SampledToken> sampled;
    if (!result->logits.empty()) {
      if (next >= kLength - 2 * kWindow) loss += NegativeLogLikelihood(result->logits, text[next]);
      sampled.push_back({text[next++], false});
    }
    scheduler->Commit(plan, sampled);
  }
  loss /= 2 * kWindow;
  EXPECT_GT(scheduler->Stats().pages_recycled, 20u);
  EXPECT_EQ(scheduler->Stats().preemptions, 0u);

  const double fresh = FreshLoss(**model, text, kLength - 2 * kWindow, kLength);
  std::printf("ring %.3f, fresh window %.3f nats per token\n", loss, fresh);
  EXPECT_NEAR(loss, fresh, 0.15) << "nats per token, ring against fresh window";
}

}  // namespace
}  // namespace tare::engine
