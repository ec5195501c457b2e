#include "load/figures.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/files.h"
#include "base/histogram.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kNormal95 = 1.959964;
// Requests beyond this are thinned in the stored series: every k-th is kept, k is recorded.
constexpr std::size_t kMostStoredRequests = 50'000;
constexpr double kStallFactor = 10;  // a stall is a gap above this many median gaps

double Between(Nanos from, Nanos to) {
  return from == Nanos(0) || to == Nanos(0) ? kNone : ToSeconds(to - from);
}

store::LatencyFigure FigureOf(const Histogram& gaps) {
  store::LatencyFigure figure;
  figure.n = gaps.count();
  if (figure.n == 0) return figure;
  const auto seconds = [&](double q) {
    const std::optional<double> value = gaps.FoundedQuantile(q);
    return value ? *value * 1e-9 : kNone;
  };
  figure.mean = gaps.mean() * 1e-9;
  figure.stddev = gaps.stddev() * 1e-9;
  figure.min = static_cast<double>(gaps.min()) * 1e-9;
  figure.max = static_cast<double>(gaps.max()) * 1e-9;
  figure.p50 = seconds(0.5);
  figure.p90 = seconds(0.9);
  figure.p95 = seconds(0.95);
  figure.p99 = seconds(0.99);
  figure.p999 = seconds(0.999);
  return figure;
}

// Microseconds are finer than anything measured here; more digits would only fill the store.
json Rounded(double seconds) {
  if (!std::isfinite(seconds)) return nullptr;
  return std::round(seconds * 1e6) / 1e6;
}

// A file written block by block beside its place and moved there when it is whole: a table of
// millions of rows is never in memory.
class BlockWriter {
 public:
  static Result<BlockWriter> Open(std::filesystem::path path) {
    BlockWriter writer;
    writer.path_ = std::move(path);
    writer.temporary_ = writer.path_.string() + ".part";
    writer.out_.open(writer.temporary_, std::ios::binary | std::ios::trunc);
    if (!writer.out_) {
      return Fail(ErrorKind::kIo, "cannot write '{}'", writer.temporary_.string());
    }
    return writer;
  }
  // Writes and empties `text` once it is large.
  Status Drain(std::string& text) {
    constexpr std::size_t kBlock = 1 << 20;
    return text.size() < kBlock ? Status() : Write(text);
  }
  Status Finish(std::string& text) {
    TARE_RETURN_IF_ERROR(Write(text));
    out_.close();
    std::error_code code;
    if (out_) std::filesystem::rename(temporary_, path_, code);
    if (!out_ || code) {
      return Fail(ErrorKind::kIo, "cannot write '{}': {}", path_.string(), code.message());
    }
    return {};
  }

 private:
  Status Write(std::string& text) {
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
    text.clear();
    if (!out_) {
      return Fail(ErrorKind::kIo, "cannot write '{}'; is the disk full?", temporary_.string());
    }
    return {};
  }
  std::filesystem::path path_, temporary_;
  std::ofstream out_;
};

std::vector<const RequestRecord*> ByTime(const Recorder& recorder) {
  std::vector<const RequestRecord*> order;
  order.reserve(recorder.requests().size());
  for (const RequestRecord& record : recorder.requests()) order.push_back(&record);
  std::sort(order.begin(), order.end(), [](const RequestRecord* a, const RequestRecord* b) {
    return a->intended != b->intended ? a->intended < b->intended : a->index < b->index;
  });
  return order;
}

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kWarmUp:
      return "warm_up";
    case Phase::kMeasured:
      return "measured";
    case Phase::kAfter:
      return "after";
  }
  return "measured";
}

}  // namespace

RequestLatencies LatenciesOf(const RequestRecord& record) {
  RequestLatencies result;
  result.ttft = Between(record.sent, record.first_token);
  result.ttft_intended = Between(record.intended, record.first_token);
  result.e2e = Between(record.sent, record.last_token);
  result.e2e_intended = Between(record.intended, record.last_token);
  const double answer = Between(record.first_token, record.last_token);
  const std::uint32_t tokens = record.output();
  result.tpot = tokens > 1 ? answer / static_cast<double>(tokens - 1) : kNone;
  result.itl_mean = record.chunks > 1 ? answer / static_cast<double>(record.chunks - 1) : kNone;
  return result;
}

bool IsGood(const RequestRecord& record, const ServiceLevels& levels) {
  if (!record.ok()) return false;
  const RequestLatencies latencies = LatenciesOf(record);
  // A latency the request does not have (one token has no TPOT) cannot be missed.
  const auto meets = [](double value, const std::optional<double>& level) {
    return !level || !(value > *level);
  };
  return meets(latencies.ttft_intended, levels.ttft) && meets(latencies.itl_mean, levels.itl) &&
         meets(latencies.tpot, levels.tpot) && meets(latencies.e2e_intended, levels.e2e);
}

double EffectiveSamples(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 4) return static_cast<double>(n);
  double mean = 0;
  for (const double v : values) mean += v;
  mean /= static_cast<double>(n);
  const auto covariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = 0; i + lag < n; ++i) sum += (values[i] - mean) * (values[i + lag] - mean);
    return sum / static_cast<double>(n);
  };
  const double variance = covariance(0);
  if (variance <= 0) return static_cast<double>(n);
  // Sums of neighbouring lags are positive for a true chain: the first that is not is noise. The
  // lags are capped so that a million requests take milliseconds, not minutes.
  const std::size_t most = std::min<std::size_t>(n / 2, 256);
  double tau = -1;
  for (std::size_t lag = 0; lag + 1 < most; lag += 2) {
    const double pair = (covariance(lag) + covariance(lag + 1)) / variance;
    if (pair <= 0) break;
    tau += 2 * pair;
  }
  return static_cast<double>(n) / std::max(1.0, tau);
}

double SortedQuantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) return kNone;
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

store::LatencyFigure FigureOf(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  store::LatencyFigure figure;
  figure.n = values.size();
  if (values.empty()) return figure;
  const double effective = EffectiveSamples(values);
  double sum = 0;
  for (const double v : values) sum += v;
  const auto n = static_cast<double>(values.size());
  figure.mean = sum / n;
  double squares = 0;
  for (const double v : values) squares += (v - figure.mean) * (v - figure.mean);
  figure.stddev = std::sqrt(squares / n);
  std::sort(values.begin(), values.end());
  figure.min = values.front();
  figure.max = values.back();
  const auto founded = [&](double q) {
    return figure.n >= MinSamplesFor(q) ? SortedQuantile(values, q) : kNone;
  };
  const auto interval = [&](double q) -> store::LatencyFigure::Interval {
    if (figure.n < MinSamplesFor(q)) return {};
    const double half = kNormal95 * std::sqrt(q * (1 - q) / effective);
    return {SortedQuantile(values, q - half), SortedQuantile(values, q + half)};
  };
  figure.p50 = founded(0.5);
  figure.p90 = founded(0.9);
  figure.p95 = founded(0.95);
  figure.p99 = founded(0.99);
  figure.p999 = founded(0.999);
  figure.p50_interval = interval(0.5);
  figure.p90_interval = interval(0.9);
  figure.p95_interval = interval(0.95);
  figure.p99_interval = interval(0.99);
  return figure;
}

store::RunSummary Summarize(const Recorder& recorder, const Window& window,
                            const ServiceLevels& levels) {
  store::RunSummary summary;
  std::vector<double> ttft, ttft_intended, e2e, e2e_intended, tpot;
  std::uint64_t ended_in_window = 0, good_in_window = 0;
  std::uint64_t told = 0, counted = 0;  // tokens, over requests whose usage was told
  for (const RequestRecord* record : ByTime(recorder)) {
    // Rates look at what ended in the window, whenever it began; latencies at what was meant to
    // begin in it, whenever it ended.
    if (record->ok() && record->end >= window.begin && record->end < window.end) {
      ++ended_in_window;
      if (IsGood(*record, levels)) ++good_in_window;
    }
    if (record->phase != Phase::kMeasured) continue;
    ++summary.total;
    if (!record->ok()) {
      ++summary.failed;
      ++summary.errors_by_kind[ErrorName(record->error, record->http_status)];
      continue;
    }
    ++summary.ok;
    summary.output_tokens += record->output();
    summary.input_tokens += record->told_usage ? record->told_input : record->wanted_input;
    summary.cached_tokens += record->told_cached;
    if (record->told_usage && record->told_output > 0) {
      told += record->told_output;
      counted += record->counted_output;
    }
    const RequestLatencies latencies = LatenciesOf(*record);
    ttft.push_back(latencies.ttft);
    ttft_intended.push_back(latencies.ttft_intended);
    e2e.push_back(latencies.e2e);
    e2e_intended.push_back(latencies.e2e_intended);
    tpot.push_back(latencies.tpot);
    summary.longest_gap_s = std::max(summary.longest_gap_s, ToSeconds(record->longest_gap));
  }
  summary.duration_s = window.seconds();
  if (summary.duration_s > 0) {
    summary.requests_per_s = static_cast<double>(ended_in_window) / summary.duration_s;
    summary.goodput_per_s = static_cast<double>(good_in_window) / summary.duration_s;
    // A chunk may hold several tokens without saying so; the server's totals tell how many.
    const double per_counted =
        counted > 0 ? static_cast<double>(told) / static_cast<double>(counted) : 1;
    summary.output_tokens_per_s =
        static_cast<double>(recorder.window_tokens()) * per_counted / summary.duration_s;
  }
  summary.ttft = {FigureOf(std::move(ttft)), FigureOf(std::move(ttft_intended))};
  summary.e2e = {FigureOf(std::move(e2e)), FigureOf(std::move(e2e_intended))};
  // Neither depends on when the request was meant to leave.
  summary.tpot.sent = summary.tpot.intended = FigureOf(std::move(tpot));
  summary.itl.sent = summary.itl.intended = FigureOf(recorder.gaps());
  if (const std::optional<double> median = recorder.gaps().FoundedQuantile(0.5)) {
    summary.stalls = recorder.gaps().CountAbove(static_cast<std::int64_t>(*median * kStallFactor));
  }
  return summary;
}

json MakeSeries(const Recorder& recorder, const Window& window, const ServiceLevels& levels) {
  json seconds = {{"started", json::array()},
                  {"ok", json::array()},
                  {"failed", json::array()},
                  {"tokens", json::array()},
                  {"chunks", json::array()}};
  for (const SecondBucket& bucket : recorder.seconds()) {
    seconds["started"].push_back(bucket.started);
    seconds["ok"].push_back(bucket.ok);
    seconds["failed"].push_back(bucket.failed);
    seconds["tokens"].push_back(bucket.tokens);
    seconds["chunks"].push_back(bucket.chunks);
  }

  const std::vector<const RequestRecord*> order = ByTime(recorder);
  const std::size_t stride = (order.size() + kMostStoredRequests - 1) / kMostStoredRequests;
  json requests = {{"intended_s", json::array()},    {"end_s", json::array()},
                   {"ttft_s", json::array()},        {"ttft_intended_s", json::array()},
                   {"e2e_s", json::array()},         {"e2e_intended_s", json::array()},
                   {"tpot_s", json::array()},        {"itl_mean_s", json::array()},
                   {"output_tokens", json::array()}, {"ok", json::array()},
                   {"good", json::array()},          {"measured", json::array()},
                   {"turn", json::array()}};
  for (std::size_t i = 0; i < order.size(); i += stride) {
    const RequestRecord& record = *order[i];
    const RequestLatencies latencies = LatenciesOf(record);
    requests["intended_s"].push_back(Rounded(Between(recorder.start(), record.intended)));
    requests["end_s"].push_back(Rounded(Between(recorder.start(), record.end)));
    requests["ttft_s"].push_back(Rounded(latencies.ttft));
    requests["ttft_intended_s"].push_back(Rounded(latencies.ttft_intended));
    requests["e2e_s"].push_back(Rounded(latencies.e2e));
    requests["e2e_intended_s"].push_back(Rounded(latencies.e2e_intended));
    requests["tpot_s"].push_back(Rounded(latencies.tpot));
    requests["itl_mean_s"].push_back(Rounded(latencies.itl_mean));
    requests["output_tokens"].push_back(record.output());
    requests["ok"].push_back(record.ok() ? 1 : 0);
    requests["good"].push_back(IsGood(record, levels) ? 1 : 0);
    requests["measured"].push_back(record.phase == Phase::kMeasured ? 1 : 0);
    requests["turn"].push_back(record.turn);
  }

  // The gaps by heat band, coarse enough to store and fine enough to draw.
  json gap_low = json::array(), gap_count = json::array();
  std::array<std::uint64_t, kHeatBands> bands{};
  for (const Histogram::Bucket& bucket : recorder.gaps().NonEmptyBuckets()) {
    bands[static_cast<std::size_t>(HeatBand(Nanos(bucket.low)))] += bucket.count;
  }
  for (int band = 0; band < kHeatBands; ++band) {
    if (bands[static_cast<std::size_t>(band)] == 0) continue;
    gap_low.push_back(HeatBandFloor(band));
    gap_count.push_back(bands[static_cast<std::size_t>(band)]);
  }
  json heat_second = json::array(), heat_band = json::array(), heat_count = json::array();
  for (std::size_t second = 0; second < recorder.gap_heat().size(); ++second) {
    for (std::size_t band = 0; band < kHeatBands; ++band) {
      const std::uint32_t count = recorder.gap_heat()[second][band];
      if (count == 0) continue;
      heat_second.push_back(second);
      heat_band.push_back(band);
      heat_count.push_back(count);
    }
  }
  return {{"window_s",
           {Rounded(ToSeconds(window.begin - window.start)),
            Rounded(ToSeconds(window.end - window.start))}},
          {"per_second", seconds},
          {"request_stride", stride},
          {"requests", requests},
          {"gap_bands", {{"low_s", gap_low}, {"count", gap_count}}},
          {"gap_heat", {{"second", heat_second}, {"band", heat_band}, {"count", heat_count}}}};
}

Status WriteCsv(const Recorder& recorder, const Window& window, const ServiceLevels& levels,
                const std::filesystem::path& dir) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot create '{}': {}", dir.string(), code.message());
  }
  const auto cell = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.6f}", value) : std::string();
  };
  const auto since = [&](Nanos at) { return cell(Between(recorder.start(), at)); };
  std::string text =
      "index,phase,intended_s,queued_s,connected_s,sent_s,first_byte_s,first_token_s,last_token_s,"
      "end_s,ttft_s,ttft_intended_s,e2e_s,e2e_intended_s,tpot_s,longest_gap_s,chunks,"
      "other_chunks,input_tokens_wanted,input_tokens,cached_tokens,output_tokens_wanted,"
      "output_tokens,http_status,error,good,thread,reused_connection,resent,turn\n";
  TARE_TRY(BlockWriter out, BlockWriter::Open(dir / "requests.csv"));
  for (const RequestRecord* r : ByTime(recorder)) {
    TARE_RETURN_IF_ERROR(out.Drain(text));
    const RequestLatencies l = LatenciesOf(*r);
    const auto told = [&](std::uint32_t v) { return r->told_usage ? std::to_string(v) : ""; };
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}"
        "\n",
        r->index, Name(r->phase), since(r->intended), since(r->queued), since(r->connected),
        since(r->sent), since(r->first_byte), since(r->first_token), since(r->last_token),
        since(r->end), cell(l.ttft), cell(l.ttft_intended), cell(l.e2e), cell(l.e2e_intended),
        cell(l.tpot), cell(ToSeconds(r->longest_gap)), r->chunks, r->other_chunks, r->wanted_input,
        told(r->told_input), told(r->told_cached), r->wanted_output, r->output(), r->http_status,
        r->ok() ? "" : ErrorName(r->error, r->http_status), IsGood(*r, levels) ? 1 : 0, r->thread,
        r->reused_connection ? 1 : 0, r->resent ? 1 : 0, r->turn);
  }
  TARE_RETURN_IF_ERROR(out.Finish(text));

  text = "second,in_window,started,ok,failed,output_tokens,chunks\n";
  for (std::size_t i = 0; i < recorder.seconds().size(); ++i) {
    const SecondBucket& s = recorder.seconds()[i];
    const Nanos from = recorder.start() + std::chrono::seconds(i);
    const bool inside = from >= window.begin && from + std::chrono::seconds(1) <= window.end;
    text += fmt::format("{},{},{},{},{},{},{}\n", i, inside ? 1 : 0, s.started, s.ok, s.failed,
                        s.tokens, s.chunks);
  }
  return WriteFileAtomic(dir / "seconds.csv", text);
}

}  // namespace tare::load
