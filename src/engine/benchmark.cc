#include "engine/benchmark.h"

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "engine/waiting_sink.h"

namespace tare::engine {
namespace {

struct Started {
  std::shared_ptr<TimingSink> sink;
  Nanos submitted{};
};

using Prompts = std::vector<std::vector<TokenId>>;

Prompts RandomPrompts(int count, int length, int vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Prompts prompts(static_cast<std::size_t>(count));
  for (auto& prompt : prompts) {
    for (int i = 0; i < length; ++i) {
      prompt.push_back(
          TokenId{static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab))});
    }
  }
  return prompts;
}

Result<std::vector<Started>> RunAll(Engine& engine, const Prompts& prompts, int gen_tokens) {
  const SteadyClock clock;
  std::vector<Started> started;
  for (const auto& prompt : prompts) {
    GenerateRequest request;
    request.prompt = prompt;
    request.max_new_tokens = gen_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0.0f;
    request.speculate = false;  // the machine is measured, not how well random text repeats
    Started s{std::make_shared<TimingSink>(clock), clock.Now()};
    TARE_RETURN_IF_ERROR(engine.Submit(std::move(request), s.sink));
    started.push_back(std::move(s));
  }
  // All have to end before any error is passed on: they hold this function's clock.
  for (const Started& s : started) (void)s.sink->Wait();
  for (const Started& s : started) TARE_RETURN_IF_ERROR(s.sink->Wait());
  return started;
}

Result<double> PrefillRate(Engine& engine, const Prompts& prompts) {
  TARE_TRY(const std::vector<Started> all, RunAll(engine, prompts, 1));
  Nanos begin = Nanos::max(), end{};
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const GenerateUsage& usage = all[i].sink->usage();
    begin = std::min(begin, all[i].submitted + usage.queued);
    end = std::max(end, all[i].submitted + usage.first_token);
    tokens += prompts[i].size() - static_cast<std::size_t>(usage.cached_tokens);
  }
  return static_cast<double>(tokens) / ToSeconds(std::max(end - begin, Nanos{1}));
}

Result<double> DecodeRate(Engine& engine, const Prompts& prompts, int gen_tokens) {
  TARE_TRY(const std::vector<Started> all, RunAll(engine, prompts, gen_tokens));
  Nanos begin{}, end = Nanos::max();
  for (const Started& s : all) {
    begin = std::max(begin, s.sink->times().front());
    end = std::min(end, s.sink->times().back());
  }
  std::size_t tokens = 0;
  for (const Started& s : all) {
    for (const Nanos time : s.sink->times()) tokens += time > begin && time <= end;
  }
  if (end <= begin || tokens == 0) {
    return Fail(ErrorKind::kInvalidArgument,
                "the answers are too short to time: with {} sequences use more than {} tokens",
                prompts.size(), gen_tokens);
  }
  return static_cast<double>(tokens) / ToSeconds(end - begin);
}

// Of the bytes of all weights, those a step between the two read: chosen experts only.
double BytesPerStep(const ExpertStats& before, const ExpertStats& after,
                    std::uint64_t weight_bytes) {
  const std::uint64_t present = after.present - before.present;
  if (present == 0) return static_cast<double>(weight_bytes);
  const double touched =
      static_cast<double>(after.touched - before.touched) / static_cast<double>(present);
  return static_cast<double>(weight_bytes) -
         (1.0 - touched) * static_cast<double>(after.weight_bytes);
}

void Summarise(std::vector<double> rates, BenchmarkResult& result) {
  std::sort(rates.begin(), rates.end());
  result.tokens_per_s = rates[rates.size() / 2];
  result.spread = (rates.back() - rates.front()) / result.tokens_per_s;
}

}  // namespace

const char* ToString(Phase phase) { return phase == Phase::kPrefill ? "prefill" : "decode"; }

Result<std::vector<BenchmarkResult>> RunBenchmark(
    Engine& engine, const BenchmarkPlan& plan,
    const std::function<void(const BenchmarkResult&)>& done) {
  if (plan.prompt_tokens < 1) {
    return FailParam("pp", "pp is {}; it must be at least 1", plan.prompt_tokens);
  }
  if (plan.gen_tokens < 2) {
    return FailParam("tg", "tg is {}; it must be at least 2", plan.gen_tokens);
  }
  std::vector<BenchmarkResult> results;
  std::uint64_t seed = 1;
  for (const int batch : plan.batches) {
    std::vector<double> prefill, decode;
    double bytes_per_step = 0.0;
    for (int repeat = 0; repeat < plan.repeats; ++repeat) {
      const Prompts prompts =
          RandomPrompts(batch, plan.prompt_tokens, engine.config().vocab, seed++);
      TARE_TRY(prefill.emplace_back(), PrefillRate(engine, prompts));
      // The same prompts: their pages are cached, so that decoding starts at once.
      const ExpertStats before = engine.Stats().experts;
      TARE_TRY(decode.emplace_back(), DecodeRate(engine, prompts, plan.gen_tokens));
      bytes_per_step = BytesPerStep(before, engine.Stats().experts, plan.weight_bytes);
    }
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      BenchmarkResult result;
      result.phase = phase;
      result.batch = batch;
      result.prompt_tokens = plan.prompt_tokens;
      result.gen_tokens = phase == Phase::kDecode ? plan.gen_tokens : 0;
      Summarise(phase == Phase::kPrefill ? prefill : decode, result);
      result.ops_per_s = 2.0 * static_cast<double>(plan.active_parameters) * result.tokens_per_s;
      if (phase == Phase::kDecode) {
        const double context = plan.prompt_tokens + plan.gen_tokens / 2.0;
        const double steps_per_s = result.tokens_per_s / batch;
        result.bytes_per_s =
            steps_per_s *
            (bytes_per_step + batch * context * static_cast<double>(plan.kv_bytes_per_token));
      }
      done(result);
      results.push_back(result);
    }
  }
  return results;
}

Ceiling CeilingFor(const kernels::MachineLimits& limits, kernels::WeightType type,
                   std::uint64_t weight_bytes) {
  Ceiling ceiling;
  switch (type) {
    case kernels::WeightType::kF32:
      ceiling.ops_per_s = limits.fma_f32.all;
      break;
    case kernels::WeightType::kBf16:
      ceiling.ops_per_s = std::max(limits.amx_bf16.all, limits.fma_f32.all);
      break;
    case kernels::WeightType::kInt8:
    case kernels::WeightType::kInt4:
      ceiling.ops_per_s = std::max({limits.amx_int8.all, limits.vnni_int8.all, limits.fma_f32.all});
      break;
  }
  const bool cached = weight_bytes < limits.cpu.l3_bytes;
  ceiling.bytes_per_s =
      cached ? std::max(limits.read_l3.all, limits.read_dram.all) : limits.read_dram.all;
  return ceiling;
}

double LimitShare(const BenchmarkResult& result, const Ceiling& ceiling) {
  double share = 0.0;
  if (ceiling.ops_per_s > 0) share = result.ops_per_s / ceiling.ops_per_s;
  if (ceiling.bytes_per_s > 0) share = std::max(share, result.bytes_per_s / ceiling.bytes_per_s);
  return share;
}

}  // namespace tare::engine
