#include "store/run_record.h"

#include <cmath>

#include "base/histogram.h"

namespace tare::store {
namespace {

using nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kSchema = "tare.run/1";

json NumberOrNull(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json Percentile(double value, std::uint64_t n, std::uint64_t needed) {
  return n >= needed ? NumberOrNull(value) : json(nullptr);
}

json ToJson(const LatencyFigure::Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return nullptr;
  return json::array({interval.low, interval.high});
}

json ToJson(const LatencyFigure& figure) {
  const std::uint64_t n = figure.n;
  const bool any = n > 0;
  return {{"mean", any ? NumberOrNull(figure.mean) : json(nullptr)},
          {"p50", Percentile(figure.p50, n, kMinSamplesP50)},
          {"p90", Percentile(figure.p90, n, kMinSamplesP90)},
          {"p95", Percentile(figure.p95, n, kMinSamplesP95)},
          {"p99", Percentile(figure.p99, n, kMinSamplesP99)},
          {"p999", Percentile(figure.p999, n, kMinSamplesP999)},
          {"max", any ? NumberOrNull(figure.max) : json(nullptr)},
          {"min", any ? NumberOrNull(figure.min) : json(nullptr)},
          {"stddev", any ? NumberOrNull(figure.stddev) : json(nullptr)},
          {"n", n},
          {"interval95",
           {{"p50", ToJson(figure.p50_interval)},
            {"p90", ToJson(figure.p90_interval)},
            {"p95", ToJson(figure.p95_interval)},
            {"p99", ToJson(figure.p99_interval)}}}};
}

json ToJson(const LatencyPair& pair) {
  return {{"sent", ToJson(pair.sent)}, {"intended", ToJson(pair.intended)}};
}

// Walks a document and remembers the first thing that is wrong with it, with its path.
// A cursor that failed answers every later question with an empty value.
class Cursor {
 public:
  Cursor(const json* value, std::string path, Status* status)
      : value_(value), path_(std::move(path)), status_(status) {}

  Cursor At(const char* key) const {
    static const json kNothing;
    if (!value_->is_object()) {
      Complain("an object is needed");
      return {&kNothing, Join(key), status_};
    }
    const auto found = value_->find(key);
    return {found == value_->end() ? &kNothing : &*found, Join(key), status_};
  }
  bool IsNull() const { return value_->is_null(); }

  std::string String() const {
    if (value_->is_string()) return value_->get<std::string>();
    Complain("a string is needed");
    return {};
  }
  std::string StringOr(std::string absent) const { return IsNull() ? absent : String(); }
  std::uint64_t Count() const {
    if (value_->is_number_unsigned()) return value_->get<std::uint64_t>();
    Complain("a whole number ≥ 0 is needed");
    return 0;
  }
  std::uint64_t CountOr(std::uint64_t absent) const { return IsNull() ? absent : Count(); }
  double Number() const {
    if (value_->is_number()) return value_->get<double>();
    Complain("a number is needed");
    return 0;
  }
  double NumberOr(double absent) const { return IsNull() ? absent : Number(); }
  bool Bool() const {
    if (value_->is_boolean()) return value_->get<bool>();
    Complain("true or false is needed");
    return false;
  }
  const json& Object() const {
    if (!value_->is_object()) Complain("an object is needed");
    return *value_;
  }
  const json& Array() const {
    if (!value_->is_array()) Complain("an array is needed");
    return *value_;
  }
  Cursor Item(const json& item, std::size_t index) const {
    return {&item, fmt::format("{}[{}]", path_, index), status_};
  }
  Cursor Member(const json& item, const std::string& key) const {
    return {&item, Join(key.c_str()), status_};
  }
  void Complain(std::string_view what) const {
    if (*status_) {
      *status_ = tl::unexpected(
          Error{ErrorKind::kCorrupt,
                fmt::format("run record: '{}' is {}: {}", path_.empty() ? "document" : path_,
                            value_->is_null() ? "missing" : "wrong", what),
                path_});
    }
  }

 private:
  std::string Join(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  const json* value_;
  std::string path_;
  Status* status_;
};

LatencyFigure::Interval ReadInterval(const Cursor& at) {
  LatencyFigure::Interval interval;
  if (at.IsNull()) return interval;
  const json& bounds = at.Array();
  if (!bounds.is_array() || bounds.size() != 2 || !bounds[0].is_number() ||
      !bounds[1].is_number()) {
    at.Complain("two numbers are needed");
    return interval;
  }
  return {bounds[0].get<double>(), bounds[1].get<double>()};
}

LatencyFigure ReadFigure(const Cursor& at) {
  LatencyFigure figure;
  figure.n = at.At("n").Count();
  figure.mean = at.At("mean").NumberOr(kUnknown);
  figure.p50 = at.At("p50").NumberOr(kUnknown);
  figure.p90 = at.At("p90").NumberOr(kUnknown);
  figure.p95 = at.At("p95").NumberOr(kUnknown);
  figure.p99 = at.At("p99").NumberOr(kUnknown);
  figure.p999 = at.At("p999").NumberOr(kUnknown);
  figure.max = at.At("max").NumberOr(kUnknown);
  figure.min = at.At("min").NumberOr(kUnknown);
  figure.stddev = at.At("stddev").NumberOr(kUnknown);
  if (const Cursor intervals = at.At("interval95"); !intervals.IsNull()) {
    figure.p50_interval = ReadInterval(intervals.At("p50"));
    figure.p90_interval = ReadInterval(intervals.At("p90"));
    figure.p95_interval = ReadInterval(intervals.At("p95"));
    figure.p99_interval = ReadInterval(intervals.At("p99"));
  }
  return figure;
}

LatencyPair ReadPair(const Cursor& at) {
  return {ReadFigure(at.At("sent")), ReadFigure(at.At("intended"))};
}

RunSummary ReadSummary(const Cursor& at) {
  RunSummary summary;
  const Cursor requests = at.At("requests");
  summary.total = requests.At("total").Count();
  summary.ok = requests.At("ok").Count();
  summary.failed = requests.At("failed").Count();
  if (const Cursor kinds = requests.At("errors_by_kind"); !kinds.IsNull()) {
    for (const auto& [kind, count] : kinds.Object().items()) {
      summary.errors_by_kind[kind] = kinds.Member(count, kind).Count();
    }
  }
  const Cursor rates = at.At("rates");
  summary.requests_per_s = rates.At("requests_per_s").Number();
  summary.output_tokens_per_s = rates.At("output_tokens_per_s").Number();
  summary.goodput_per_s = rates.At("goodput_per_s").Number();
  if (const Cursor tokens = at.At("tokens"); !tokens.IsNull()) {
    summary.input_tokens = tokens.At("input").CountOr(0);
    summary.output_tokens = tokens.At("output").CountOr(0);
    summary.cached_tokens = tokens.At("cached").CountOr(0);
  }
  summary.duration_s = at.At("duration_s").NumberOr(0);
  const Cursor latency = at.At("latency_s");
  summary.ttft = ReadPair(latency.At("ttft"));
  summary.itl = ReadPair(latency.At("itl"));
  summary.tpot = ReadPair(latency.At("tpot"));
  summary.e2e = ReadPair(latency.At("e2e"));
  if (const Cursor gaps = at.At("gaps"); !gaps.IsNull()) {
    summary.longest_gap_s = gaps.At("longest_s").NumberOr(0);
    summary.stalls = gaps.At("stalls").CountOr(0);
  }
  if (const Cursor memory = at.At("memory"); !memory.IsNull()) {
    summary.peak_rss_bytes = memory.At("peak_rss_bytes").CountOr(0);
    summary.peak_pss_bytes = memory.At("peak_pss_bytes").CountOr(0);
  }
  return summary;
}

json CountOrNull(std::uint64_t value) { return value > 0 ? json(value) : json(nullptr); }

}  // namespace

json ToJson(const RunRecord& record) {
  json checks = json::array();
  for (const ValidityCheck& check : record.checks) {
    checks.push_back({{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}});
  }
  const RunSummary& s = record.summary;
  json document = {
      {"schema", kSchema},
      {"id", record.id},
      {"tag", record.tag},
      {"name", record.name},
      {"started_at", record.started_at},
      {"validity", {{"verdict", record.valid ? "valid" : "invalid"}, {"checks", checks}}},
      {"summary",
       {{"requests",
         {{"total", s.total},
          {"ok", s.ok},
          {"failed", s.failed},
          {"errors_by_kind", json(s.errors_by_kind)}}},
        {"rates",
         {{"requests_per_s", NumberOrNull(s.requests_per_s)},
          {"output_tokens_per_s", NumberOrNull(s.output_tokens_per_s)},
          {"goodput_per_s", NumberOrNull(s.goodput_per_s)}}},
        {"tokens",
         {{"input", s.input_tokens}, {"output", s.output_tokens}, {"cached", s.cached_tokens}}},
        {"duration_s", s.duration_s},
        {"latency_s",
         {{"ttft", ToJson(s.ttft)},
          {"itl", ToJson(s.itl)},
          {"tpot", ToJson(s.tpot)},
          {"e2e", ToJson(s.e2e)}}},
        {"gaps", {{"longest_s", s.longest_gap_s}, {"stalls", s.stalls}}},
        {"memory",
         {{"peak_rss_bytes", CountOrNull(s.peak_rss_bytes)},
          {"peak_pss_bytes", CountOrNull(s.peak_pss_bytes)}}}}},
      {"workload", record.workload},
      {"target", record.target}};
  if (!record.series.is_null()) document["series"] = record.series;
  return document;
}

Result<RunRecord> RunRecordFromJson(const json& document) {
  Status status;
  const Cursor root(&document, "", &status);
  RunRecord record;
  const std::string schema = root.At("schema").String();
  if (status && schema != kSchema) {
    return Fail(ErrorKind::kUnsupported,
                "run record has schema '{}', this version reads '{}'; use the version of tare that "
                "wrote it",
                schema, kSchema);
  }
  record.tag = root.At("tag").String();
  if (record.tag != "measured" && record.tag != "simulated") {
    root.At("tag").Complain("'measured' or 'simulated' is needed");
  }
  record.id = root.At("id").StringOr({});
  record.name = root.At("name").StringOr({});
  record.started_at = root.At("started_at").StringOr({});
  const Cursor validity = root.At("validity");
  const std::string verdict = validity.At("verdict").String();
  if (verdict != "valid" && verdict != "invalid") {
    validity.At("verdict").Complain("'valid' or 'invalid' is needed");
  }
  record.valid = verdict == "valid";
  const Cursor checks = validity.At("checks");
  std::size_t index = 0;
  if (checks.Array().is_array()) {
    for (const json& item : checks.Array()) {
      const Cursor check = checks.Item(item, index++);
      record.checks.push_back(
          {check.At("name").String(), check.At("ok").Bool(), check.At("detail").StringOr({})});
    }
  }
  record.summary = ReadSummary(root.At("summary"));
  if (const auto it = document.find("workload"); it != document.end()) record.workload = *it;
  if (const auto it = document.find("target"); it != document.end()) record.target = *it;
  if (const auto it = document.find("series"); it != document.end()) record.series = *it;
  if (!status) return tl::unexpected(std::move(status).error());
  return record;
}

}  // namespace tare::store
