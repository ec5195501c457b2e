#include "sim/published.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "load/figures.h"
#include "sim/cluster.h"

namespace tare::sim {
namespace {

constexpr double kFirstTokenWeight = 0.5;
// Defaults of the servers measured.
constexpr int kServerBatchedTokens = 8192;
constexpr int kServerSequences = 1024;
// Benchmarks draw lengths from a range about the nominal one; without it all answers would end in
// step, which no server sees.
constexpr double kLengthCv = 0.1;
// The load of 1 to 128 users was drawn from production traffic: its answers' times differ by
// twenty between median and 99th percentile.
constexpr double kProductionLengthCv = 1.5;

struct Parameter {
  const char* name;
  double& (*of)(ServingEfficiency&);
  double low, high, step;
};

// Compute is bounded by what large products reach on such devices: the few first tokens measured
// would fit better with the peak itself, which nothing reaches.
constexpr Parameter kParameters[] = {
    {"bandwidth", [](ServingEfficiency& e) -> double& { return e.step.bandwidth; }, 0.2, 1, 0.1},
    {"compute", [](ServingEfficiency& e) -> double& { return e.step.compute; }, 0.05, 0.7, 0.1},
    {"per layer", [](ServingEfficiency& e) -> double& { return e.step.seconds_per_layer; }, 0,
     500e-6, 20e-6},
    {"per sparse layer",
     [](ServingEfficiency& e) -> double& { return e.step_overheads.seconds_per_sparse_layer; }, 0,
     500e-6, 20e-6},
    {"per collective",
     [](ServingEfficiency& e) -> double& { return e.step.seconds_per_collective; }, 0, 100e-6,
     5e-6},
    {"per sequence",
     [](ServingEfficiency& e) -> double& { return e.step_overheads.seconds_per_sequence; }, 0, 2e-3,
     50e-6},
    {"per request", [](ServingEfficiency& e) -> double& { return e.overheads.request_seconds; }, 0,
     0.15, 0.02},
};

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double Loss(std::span<const econ::MeasuredPoint> points, const ServingEfficiency& efficiency) {
  std::map<std::string_view, std::pair<double, double>> groups;  // weighted error, weight
  for (const econ::MeasuredPoint& point : points) {
    if (!InFit(point)) continue;
    const PublishedPrediction p = PredictPublished(point, efficiency);
    auto& [error, weight] = groups[point.group];
    error += std::abs(std::log(p.seconds_per_output_token / point.seconds_per_output_token));
    weight += 1;
    if (point.seconds_to_first_token) {
      error += kFirstTokenWeight *
               std::abs(std::log(p.seconds_to_first_token / *point.seconds_to_first_token));
      weight += kFirstTokenWeight;
    }
  }
  // A device counts as the square root of its points: more of them say more, but not as much as
  // their number, since they come from one server.
  double sum = 0, weights = 0;
  for (const auto& [group, value] : groups) {
    sum += value.first / std::sqrt(value.second);
    weights += std::sqrt(value.second);
  }
  return sum / weights;
}

class Errors {
 public:
  void Add(double error, const econ::MeasuredPoint& point) {
    sizes_.push_back(std::abs(error));
    if (sizes_.size() > 1 && std::abs(error) <= std::abs(figures_.worst)) return;
    figures_.worst = error;
    figures_.worst_what =
        fmt::format("{}, {:.0f} at once", point.deployment.model.name, point.load.concurrency);
  }
  ErrorFigures Figures() {
    if (sizes_.empty()) return figures_;
    std::sort(sizes_.begin(), sizes_.end());
    const std::size_t half = sizes_.size() / 2;
    figures_.points = static_cast<int>(sizes_.size());
    figures_.median =
        sizes_.size() % 2 == 1 ? sizes_[half] : 0.5 * (sizes_[half - 1] + sizes_[half]);
    figures_.mean = Mean(sizes_);
    return figures_;
  }

 private:
  ErrorFigures figures_;
  std::vector<double> sizes_;
};

struct ErrorsOfBoth {
  Errors output_token, first_token;
  void Add(const econ::MeasuredPoint& point, const PublishedPrediction& p) {
    output_token.Add(p.seconds_per_output_token / point.seconds_per_output_token - 1, point);
    if (point.seconds_to_first_token) {
      first_token.Add(p.seconds_to_first_token / *point.seconds_to_first_token - 1, point);
    }
  }
  ErrorPair Figures() { return {output_token.Figures(), first_token.Figures()}; }
};

GroupSpec GroupOf(const econ::Deployment& deployment, const ServingEfficiency& efficiency,
                  int sequences, int batched_tokens, std::uint64_t kv_tokens, int longest) {
  GroupSpec group;
  group.name = deployment.device.name;
  group.step_time = std::make_shared<RooflineStepTime>(deployment, efficiency.step, batched_tokens,
                                                       efficiency.step_overheads);
  group.scheduler.max_num_seqs = sequences;
  group.scheduler.max_num_batched_tokens = std::max(batched_tokens, sequences);
  group.scheduler.prefill_chunk = 0;
  group.scheduler.batch_window = Nanos{0};
  group.scheduler.max_model_len = longest;
  group.scheduler.pool.pages = static_cast<std::uint32_t>(kv_tokens / 16);
  group.overheads = efficiency.overheads;
  return group;
}

}  // namespace

bool InFit(const econ::MeasuredPoint& point) { return point.source != "pilot"; }

PublishedPrediction PredictPublished(const econ::MeasuredPoint& point,
                                     const ServingEfficiency& efficiency) {
  const econ::ServingLoad& load = point.load;
  if (load.prefill_elsewhere) {
    const RooflineStepTime time(point.deployment, efficiency.step,
                                static_cast<int>(load.concurrency), efficiency.step_overheads);
    const double context = load.prompt_tokens + load.output_tokens / 2;
    return {time.Seconds(DecodeLoad(load.concurrency, load.concurrency * context)), 0};
  }
  ClusterSpec spec;
  const auto users = static_cast<int>(load.concurrency);
  spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kClosed;
  spec.traffic.arrival.users = users;
  TrafficClass kind;
  kind.input_tokens = static_cast<int>(load.prompt_tokens);
  kind.output_tokens = static_cast<int>(std::lround(load.output_tokens));
  kind.length_cv = InFit(point) ? kLengthCv : kProductionLengthCv;
  spec.traffic.classes = {kind};
  // As many as benchmarks send; the first wave, which comes at once, is part of their means.
  spec.requests = static_cast<std::uint64_t>(std::max(users * 5, 20));
  const int longest = Traffic::Create(spec.traffic)->LongestSequence() + 16;
  spec.groups = {GroupOf(
      point.deployment, efficiency, kServerSequences, kServerBatchedTokens,
      static_cast<std::uint64_t>(longest) * static_cast<std::uint64_t>(users + 1), longest)};
  const auto outcome = RunCluster(spec, nullptr);
  if (!outcome) return {};
  const store::RunSummary s = load::Summarize(outcome->recorder, outcome->window, {});
  // Those data are medians: of the gaps between tokens, and of the first tokens.
  if (!InFit(point)) return {outcome->recorder.gaps().Quantile(0.5) * 1e-9, s.ttft.sent.p50};
  return {s.tpot.sent.mean, s.ttft.sent.mean};
}

ServingEfficiency FitPublished(std::span<const econ::MeasuredPoint> points,
                               const ServingEfficiency& start, double scale) {
  ServingEfficiency best = start;
  double best_loss = Loss(points, best);
  for (; scale > 0.1; scale *= 0.5) {
    for (bool improved = true; improved;) {
      improved = false;
      for (const Parameter& parameter : kParameters) {
        for (const double direction : {-1.0, 1.0}) {
          ServingEfficiency tried = best;
          double& value = parameter.of(tried);
          const double before = value;
          value =
              std::clamp(value + direction * scale * parameter.step, parameter.low, parameter.high);
          if (value == before) continue;
          const double loss = Loss(points, tried);
          if (loss < best_loss - 1e-5) {
            best = tried;
            best_loss = loss;
            improved = true;
          }
        }
      }
    }
  }
  return best;
}

PublishedError ErrorOfPublished(std::span<const econ::MeasuredPoint> points,
                                const ServingEfficiency& efficiency,
                                const std::function<void(const std::string&)>& progress) {
  PublishedError error;
  ErrorsOfBoth fitted, left_out, other;
  std::set<std::pair<std::string, bool>> devices;  // name, whether it is fitted
  for (const econ::MeasuredPoint& point : points) {
    error.predictions.push_back(PredictPublished(point, efficiency));
    devices.emplace(point.group, InFit(point));
    (InFit(point) ? fitted : other).Add(point, error.predictions.back());
  }
  error.without_device = error.predictions;
  for (const auto& [device, in_fit] : devices) {
    ServingEfficiency without = efficiency;
    if (in_fit) {
      if (progress) progress(device);
      std::vector<econ::MeasuredPoint> others;
      for (const econ::MeasuredPoint& point : points) {
        if (point.group != device) others.push_back(point);
      }
      if (std::none_of(others.begin(), others.end(), InFit)) continue;
      // From where the fit to all begins to differ: the neighbourhood of its optimum.
      without = FitPublished(others, efficiency, 1);
    }
    ErrorsOfBoth own;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].group != device || InFit(points[i]) != in_fit) continue;
      if (in_fit) {
        error.without_device[i] = PredictPublished(points[i], without);
        left_out.Add(points[i], error.without_device[i]);
      }
      own.Add(points[i], error.without_device[i]);
    }
    error.devices.push_back({device, in_fit, own.Figures()});
  }
  error.fitted = fitted.Figures();
  error.left_out = left_out.Figures();
  error.other = other.Figures();
  return error;
}

Result<ReplayError> ReplayRequests(const std::filesystem::path& folder,
                                   const econ::Catalog& catalog,
                                   const ServingEfficiency& efficiency) {
  using nlohmann::json;
  TARE_TRY(const std::string text, ReadFile(folder / "requests.jsonl"));
  TARE_TRY(const std::string meta_text, ReadFile(folder / "meta.json"));
  const json meta = json::parse(meta_text, nullptr, /*allow_exceptions=*/false);
  struct Line {
    double arrival = 0, queued = 0, first = 0, last = 0;
    int input = 0, output = 0;
  };
  std::vector<Line> lines;
  const auto number = [](const json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_number() ? it->get<double>() : 0.0;
  };
  for (const std::string_view line : Split(text, '\n')) {
    if (Trim(line).empty()) continue;
    const json one = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!one.is_object()) return Fail(ErrorKind::kCorrupt, "requests.jsonl: not a JSON object");
    lines.push_back({number(one, "arrival_time"), number(one, "queued_ts"),
                     number(one, "first_token_ts"), number(one, "last_token_ts"),
                     static_cast<int>(number(one, "input_toks")),
                     static_cast<int>(number(one, "output_toks"))});
  }
  if (lines.empty() || !meta.is_object() || !meta.contains("engine_kwargs") ||
      !meta.contains("kv_cache")) {
    return Fail(ErrorKind::kCorrupt, "'{}' holds no requests", folder.string());
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.queued < b.queued; });
  auto trace = std::make_shared<load::Trace>();
  trace->name = "vllm_requests";
  for (const Line& line : lines) {
    trace->requests.push_back(
        {FromSeconds(line.queued - lines.front().queued), line.input, line.output, {}});
  }
  ClusterSpec spec;
  spec.traffic.arrival.kind = load::ArrivalSpec::Kind::kTrace;
  spec.traffic.trace = trace;
  econ::Deployment deployment;
  TARE_TRY(deployment.model, catalog.FindModel("llama-3-8b"));
  TARE_TRY(deployment.device, catalog.FindDevice("rtx-4090"));
  deployment.weights = deployment.cache = *econ::FindPrecision("bf16");
  const json& engine = meta["engine_kwargs"];
  const auto kv_tokens = static_cast<std::uint64_t>(number(meta["kv_cache"], "num_kv_tokens"));
  spec.groups = {GroupOf(deployment, efficiency, static_cast<int>(number(engine, "max_num_seqs")),
                         static_cast<int>(number(engine, "max_num_batched_tokens")), kv_tokens,
                         static_cast<int>(std::min<double>(number(engine, "max_model_len"),
                                                           static_cast<double>(kv_tokens))))};
  // The log's times are the server's own, from its queue to its tokens.
  spec.groups[0].overheads = {};
  TARE_TRY(const Outcome outcome, RunCluster(spec, nullptr));
  const store::RunSummary s = load::Summarize(outcome.recorder, outcome.window, {});

  std::vector<double> ttft, tpot, e2e;
  double last = 0, tokens = 0;
  for (const Line& line : lines) {
    ttft.push_back(line.first - line.queued);
    e2e.push_back(line.last - line.queued);
    if (line.output > 1) tpot.push_back((line.last - line.first) / (line.output - 1));
    last = std::max(last, line.last);
    tokens += line.output;
  }
  const auto at = [](std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return load::SortedQuantile(values, q);
  };
  const double seconds = last - lines.front().queued;
  ReplayError error;
  error.metrics = {
      {"output tokens/s", tokens / seconds, s.output_tokens_per_s},
      {"TTFT mean", Mean(ttft), s.ttft.sent.mean},
      {"TTFT P50", at(ttft, 0.5), s.ttft.sent.p50},
      {"TTFT P90", at(ttft, 0.9), s.ttft.sent.p90},
      {"TPOT P50", at(tpot, 0.5), s.tpot.sent.p50},
      {"TPOT P90", at(tpot, 0.9), s.tpot.sent.p90},
      {"E2E P50", at(e2e, 0.5), s.e2e.sent.p50},
  };
  return error;
}

}  // namespace tare::sim
