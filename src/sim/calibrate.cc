#include "sim/calibrate.h"

#include <algorithm>
#include <random>
#include <thread>

#include "base/clock.h"
#include "engine/waiting_sink.h"

namespace tare::sim {
namespace {

constexpr int kShortPrompt = 16;
// Long enough for every repeat of a prompt beside it, short enough for a slow model's minute.
constexpr int kMixedAnswer = 64;
constexpr int kDefaultChunk = 128, kMostBeside = 16;
constexpr Nanos kMostWait = std::chrono::seconds(10);

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Measurer {
 public:
  Measurer(engine::Engine& engine, const CalibrationPlan& plan) : engine_(engine), plan_(plan) {}

  // The steps a prompt of `length` tokens takes when it is alone.
  Result<TimedSteps> Prompt(int length) {
    std::vector<double> seconds;
    for (int repeat = 0; repeat < plan_.repeats; ++repeat) {
      TARE_TRY(const auto sink, Submit(length, 1));
      TARE_RETURN_IF_ERROR(sink->Wait());
      seconds.push_back(ToSeconds(sink->usage().first_token - sink->usage().queued));
    }
    TimedSteps point;
    point.what = fmt::format("prompt of {} tokens", length);
    point.seconds = Median(seconds);
    for (int start = 0; start < length; start += plan_.max_num_batched_tokens) {
      const double tokens = std::min(plan_.max_num_batched_tokens, length - start);
      StepLoad load;
      load.rows = tokens;
      load.logit_rows = start + static_cast<int>(tokens) == length ? 1 : 0;
      if (tokens == 1) {
        load.decode_context = start + 1;
      } else {
        load.prefill_context = start + tokens;
        load.prefill_pairs = tokens * start + tokens * (tokens + 1) / 2;
      }
      point.steps.push_back(load);
    }
    return point;
  }

  // A step of `batch` sequences that decode, each `prompt` tokens and a few long.
  Result<TimedSteps> Decode(int batch, int prompt) {
    // While the first sequences already decode the others are still prefilled; what is timed
    // begins when the last one has begun.
    const int steps_to_begin =
        prompt * batch /
            std::max(1, std::min(plan_.prefill_chunk > 0 ? plan_.prefill_chunk
                                                         : plan_.max_num_batched_tokens,
                                 plan_.max_num_batched_tokens)) +
        batch + 2;
    const int room = plan_.max_model_len - prompt - 1;
    const int answer = std::min(room, steps_to_begin + plan_.decode_steps);
    std::vector<std::shared_ptr<engine::TimingSink>> sinks;
    for (int i = 0; i < batch; ++i) {
      TARE_TRY(sinks.emplace_back(), Submit(prompt, answer));
    }
    for (const auto& sink : sinks) (void)sink->Wait();
    for (const auto& sink : sinks) TARE_RETURN_IF_ERROR(sink->Wait());
    Nanos begin{}, end = Nanos::max();
    for (const auto& sink : sinks) {
      begin = std::max(begin, sink->times().front());
      end = std::min(end, sink->times().back());
    }
    const std::vector<Nanos>& times = sinks.front()->times();
    std::vector<double> gaps;
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] >= begin && times[i] <= end)
        gaps.push_back(ToSeconds(times[i] - times[i - 1]));
    }
    if (gaps.empty()) {
      return Fail(ErrorKind::kInvalidArgument,
                  "{} sequences of {} tokens end before they decode together; give a larger "
                  "max_model_len",
                  batch, prompt);
    }
    // Tokens each sequence has, half way through what was timed.
    const Nanos middle = begin + (end - begin) / 2;
    double context = 0;
    for (const auto& sink : sinks) {
      const auto& own = sink->times();
      context += prompt + static_cast<double>(std::lower_bound(own.begin(), own.end(), middle) -
                                              own.begin());
    }
    TimedSteps point;
    point.what = fmt::format("{} decode at {} tokens", batch, prompt);
    point.seconds = Median(gaps);
    point.steps = {DecodeLoad(batch, context)};
    return point;
  }

  // A step in which `batch` answers go on and a prompt of `length` tokens is computed: what a first
  // token costs on a busy server. `length` fits the prefill chunk.
  Result<TimedSteps> Mixed(int batch, int length) {
    const int answer = std::min(plan_.max_model_len - kShortPrompt - 1, kMixedAnswer);
    const std::uint64_t before = engine_.Stats().generated_tokens;
    std::vector<std::shared_ptr<engine::TimingSink>> sinks;
    for (int i = 0; i < batch; ++i) {
      TARE_TRY(sinks.emplace_back(), Submit(kShortPrompt, answer));
    }
    const auto generated = [&] {
      return static_cast<double>(engine_.Stats().generated_tokens - before);
    };
    const Nanos give_up = clock_.Now() + kMostWait;
    while (generated() < 2.0 * batch && clock_.Now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    struct Timed {
      Nanos end{};
      double seconds = 0, own_tokens = 0;  // of each answer, when the step began
    };
    std::vector<Timed> timed;
    Status failed;
    for (int repeat = 0; repeat < plan_.repeats && failed; ++repeat) {
      const double own = generated() / batch;
      const Nanos submitted = clock_.Now();
      const auto sink = Submit(length, 1);
      if (!sink) {
        failed = tl::unexpected(sink.error());
        break;
      }
      failed = (*sink)->Wait();
      const engine::GenerateUsage& usage = (*sink)->usage();
      timed.push_back(
          {submitted + usage.first_token, ToSeconds(usage.first_token - usage.queued), own});
    }
    // All have to end before an error is passed on: they hold this object's clock.
    for (const auto& sink : sinks) (void)sink->Wait();
    TARE_RETURN_IF_ERROR(failed);
    Nanos together = Nanos::max();
    for (const auto& sink : sinks) {
      TARE_RETURN_IF_ERROR(sink->Wait());
      together = std::min(together, sink->times().back());
    }
    std::vector<double> seconds;
    double own_tokens = 0;
    for (const Timed& one : timed) {
      if (one.end > together) continue;  // an answer had ended: another step
      seconds.push_back(one.seconds);
      own_tokens += one.own_tokens;
    }
    TimedSteps point;
    point.what = fmt::format("prompt of {} tokens beside {} answers", length, batch);
    if (seconds.empty()) return point;
    const double context =
        batch * (kShortPrompt + own_tokens / static_cast<double>(seconds.size()) + 1);
    point.seconds = Median(seconds);
    const double rows = length;
    point.steps = {{rows + batch, batch + 1.0, context, rows, rows * (rows + 1) / 2}};
    return point;
  }

 private:
  // A prompt of random tokens, so that no page of it is in the cache.
  Result<std::shared_ptr<engine::TimingSink>> Submit(int length, int answer) {
    engine::GenerateRequest request;
    const auto vocabulary = static_cast<std::uint64_t>(engine_.config().vocab);
    for (int i = 0; i < length; ++i) {
      request.prompt.push_back(TokenId{static_cast<std::int32_t>(random_() % vocabulary)});
    }
    request.max_new_tokens = answer;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.use_prefix_cache = false;
    request.speculate = false;  // a step shall have as many rows as sequences
    auto sink = std::make_shared<engine::TimingSink>(clock_);
    TARE_RETURN_IF_ERROR(engine_.Submit(std::move(request), sink));
    return sink;
  }

  engine::Engine& engine_;
  const CalibrationPlan& plan_;
  const SteadyClock clock_;
  std::mt19937_64 random_{1};
};

struct GridPoint {
  int batch = 0;  // 0: a prompt alone
  int length = 0;
  bool mixed = false;  // a prompt of `length` beside `batch` answers
};

// Most used first, so that a budget cuts the rest.
std::vector<GridPoint> Grid(const CalibrationPlan& plan) {
  std::vector<GridPoint> grid;
  for (const int batch : {1, 2, 4, 8, 16, 32, 64, 128}) {
    if (batch <= plan.max_num_seqs) grid.push_back({batch, kShortPrompt});
  }
  for (const int length : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
    if (length < plan.max_model_len && length <= plan.max_num_batched_tokens) {
      grid.push_back({0, length});
    }
  }
  const int chunk = std::min({plan.prefill_chunk > 0 ? plan.prefill_chunk : kDefaultChunk,
                              plan.max_num_batched_tokens - kMostBeside, plan.max_model_len - 2});
  for (const int batch : {1, 4, 16, 8}) {
    if (batch < plan.max_num_seqs && chunk > 1) grid.push_back({batch, chunk, true});
  }
  const int longest = plan.max_model_len - 2 - plan.decode_steps;
  for (const int length : {512, 1024, 1536}) {
    if (length > longest) continue;
    if (length > plan.max_num_batched_tokens) grid.push_back({0, length});
    for (const int batch : {1, 4}) {
      if (batch <= plan.max_num_seqs) grid.push_back({batch, length});
    }
  }
  for (const int batch : {8, 16, 32}) {
    if (batch <= plan.max_num_seqs && 256 <= longest) grid.push_back({batch, 256});
  }
  for (const int batch : {3, 6, 12, 24}) {
    if (batch <= plan.max_num_seqs) grid.push_back({batch, kShortPrompt});
  }
  return grid;
}

}  // namespace

Result<Calibration> Calibrate(engine::Engine& engine, const CalibrationPlan& plan,
                              const std::function<void(const CalibrationProgress&)>& progress) {
  const SteadyClock clock;
  const Nanos started = clock.Now();
  Measurer measurer(engine, plan);
  const std::vector<GridPoint> grid = Grid(plan);
  Calibration calibration;
  calibration.max_num_seqs = plan.max_num_seqs;
  calibration.max_num_batched_tokens = plan.max_num_batched_tokens;
  calibration.prefill_chunk = plan.prefill_chunk;
  calibration.max_model_len = plan.max_model_len;
  // Caches, page tables and clocks settle.
  TARE_RETURN_IF_ERROR(measurer.Prompt(32));
  int done = 0;
  for (const GridPoint& at : grid) {
    if (clock.Now() - started > plan.budget && calibration.points.size() >= 4) break;
    TARE_TRY(TimedSteps point, at.mixed       ? measurer.Mixed(at.batch, at.length)
                               : at.batch > 0 ? measurer.Decode(at.batch, at.length)
                                              : measurer.Prompt(at.length));
    ++done;
    if (progress) progress({point.what, done, static_cast<int>(grid.size())});
    if (!point.steps.empty()) calibration.points.push_back(std::move(point));
  }
  calibration.fit = FitSteps(calibration.points);
  calibration.fitted = ErrorOf(calibration.fit, calibration.points);
  calibration.left_out = LeaveOneOutError(calibration.points);
  calibration.took_s = ToSeconds(clock.Now() - started);
  return calibration;
}

}  // namespace tare::sim
