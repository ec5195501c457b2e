#include "sim/measured_step_time.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/files.h"

namespace tare::sim {
namespace {

using nlohmann::json;

constexpr double kBodyKnots[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
constexpr int kSweeps = 20'000;

// Coefficients of a point: rises of body at its knots, rises of logits, the two of attention.
struct Layout {
  std::vector<double> body, logits;
  std::size_t size() const { return body.size() + logits.size() + 2; }
};

// Only knots that some step reaches: the others would be free.
std::vector<double> KnotsUpTo(double most) {
  std::vector<double> knots;
  for (const double knot : kBodyKnots) {
    knots.push_back(knot);
    if (knot >= most) break;
  }
  return knots;
}

// How much of the rise from knot i-1 to knot i the value `x` has behind it.
void AddRises(const std::vector<double>& knots, double x, std::size_t offset,
              std::vector<double>& row) {
  if (x <= 0) return;
  row[offset] += 1;
  for (std::size_t i = 1; i < knots.size(); ++i) {
    double share = (x - knots[i - 1]) / (knots[i] - knots[i - 1]);
    if (i + 1 < knots.size()) share = std::min(share, 1.0);
    row[offset + i] += std::max(0.0, share);
  }
}

std::vector<double> RowOf(const Layout& layout, const TimedSteps& point) {
  std::vector<double> row(layout.size());
  for (const StepLoad& load : point.steps) {
    AddRises(layout.body, load.rows, 0, row);
    AddRises(layout.logits, load.logit_rows, layout.body.size(), row);
    row[layout.size() - 2] += load.decode_context;
    row[layout.size() - 1] += load.prefill_pairs;
  }
  return row;
}

// Non-negative least squares by coordinate descent: the problem is small and convex.
std::vector<double> SolveNonNegative(const std::vector<std::vector<double>>& rows) {
  // Every row is divided by its measured time, so that all right-hand sides are 1.
  const std::size_t size = rows.front().size();
  std::vector<double> x(size), norm(size), residual(rows.size(), 1.0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < size; ++j) norm[j] += rows[i][j] * rows[i][j];
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    for (std::size_t j = 0; j < size; ++j) {
      if (norm[j] <= 0) continue;
      double slope = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) slope += rows[i][j] * residual[i];
      const double next = std::max(0.0, x[j] + slope / norm[j]);
      const double change = next - x[j];
      if (change == 0) continue;
      x[j] = next;
      moved += std::abs(change) * std::sqrt(norm[j]);
      for (std::size_t i = 0; i < rows.size(); ++i) residual[i] -= change * rows[i][j];
    }
    if (moved < 1e-12) break;
  }
  return x;
}

StepCurve CurveOf(const std::vector<double>& knots, const std::vector<double>& x,
                  std::size_t offset) {
  StepCurve curve;
  double sum = 0;
  for (std::size_t i = 0; i < knots.size(); ++i) {
    sum += x[offset + i];
    curve.at.push_back(knots[i]);
    curve.seconds.push_back(sum);
  }
  return curve;
}

double Predicted(const StepFit& fit, const TimedSteps& point) {
  double seconds = 0;
  for (const StepLoad& load : point.steps) seconds += fit.Seconds(load);
  return seconds;
}

FitError Summary(std::vector<std::pair<double, std::string>> errors) {
  FitError error;
  if (errors.empty()) return error;
  std::sort(errors.begin(), errors.end());
  error.median = errors[errors.size() / 2].first;
  error.worst = errors.back().first;
  error.worst_what = errors.back().second;
  return error;
}

}  // namespace

double StepCurve::Value(double x) const {
  if (x <= 0 || at.empty()) return 0;
  if (at.size() == 1 || x <= at.front()) return seconds.front();
  std::size_t i = 1;
  while (i + 1 < at.size() && x > at[i]) ++i;
  const double slope = (seconds[i] - seconds[i - 1]) / (at[i] - at[i - 1]);
  return seconds[i - 1] + slope * (x - at[i - 1]);
}

double StepFit::Seconds(const StepLoad& load) const {
  return body.Value(load.rows) + logits.Value(load.logit_rows) +
         seconds_per_decode_context * load.decode_context +
         seconds_per_prefill_pair * load.prefill_pairs;
}

StepFit FitSteps(std::span<const TimedSteps> points) {
  TARE_CHECK(!points.empty());
  double most_rows = 1, most_logits = 1;
  for (const TimedSteps& point : points) {
    for (const StepLoad& load : point.steps) {
      most_rows = std::max(most_rows, load.rows);
      most_logits = std::max(most_logits, load.logit_rows);
    }
  }
  const Layout layout = {KnotsUpTo(most_rows), KnotsUpTo(most_logits)};
  std::vector<std::vector<double>> rows;
  for (const TimedSteps& point : points) {
    std::vector<double>& row = rows.emplace_back(RowOf(layout, point));
    for (double& value : row) value /= point.seconds;
  }
  const std::vector<double> x = SolveNonNegative(rows);
  StepFit fit;
  fit.body = CurveOf(layout.body, x, 0);
  fit.logits = CurveOf(layout.logits, x, layout.body.size());
  fit.seconds_per_decode_context = x[layout.size() - 2];
  fit.seconds_per_prefill_pair = x[layout.size() - 1];
  return fit;
}

FitError ErrorOf(const StepFit& fit, std::span<const TimedSteps> points) {
  std::vector<std::pair<double, std::string>> errors;
  for (const TimedSteps& point : points) {
    errors.emplace_back(std::abs(Predicted(fit, point) / point.seconds - 1), point.what);
  }
  return Summary(std::move(errors));
}

FitError LeaveOneOutError(std::span<const TimedSteps> points) {
  std::vector<std::pair<double, std::string>> errors;
  for (std::size_t left = 0; left < points.size() && points.size() > 1; ++left) {
    std::vector<TimedSteps> others;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i != left) others.push_back(points[i]);
    }
    const StepFit fit = FitSteps(others);
    errors.emplace_back(std::abs(Predicted(fit, points[left]) / points[left].seconds - 1),
                        points[left].what);
  }
  return Summary(std::move(errors));
}

json ToJson(const Calibration& c) {
  const auto error = [](const FitError& e) -> json {
    return {{"median", e.median}, {"worst", e.worst}, {"worst_at", e.worst_what}};
  };
  const auto curve = [](const StepCurve& k) -> json {
    return {{"at", k.at}, {"seconds", k.seconds}};
  };
  json points = json::array();
  for (const TimedSteps& point : c.points) {
    json steps = json::array();
    for (const StepLoad& s : point.steps) {
      steps.push_back({s.rows, s.logit_rows, s.decode_context, s.prefill_context, s.prefill_pairs});
    }
    points.push_back({{"what", point.what},
                      {"seconds", point.seconds},
                      {"predicted_seconds", Predicted(c.fit, point)},
                      {"steps", std::move(steps)}});
  }
  return {{"schema", "tare.calibration/1"},
          {"machine", {{"cpu", c.cpu}, {"threads", c.threads}}},
          {"model", c.model},
          {"dtype", c.dtype},
          {"measured_at", c.measured_at},
          {"tare_version", c.tare_version},
          {"took_s", c.took_s},
          {"engine",
           {{"max_num_seqs", c.max_num_seqs},
            {"max_num_batched_tokens", c.max_num_batched_tokens},
            {"prefill_chunk", c.prefill_chunk},
            {"max_model_len", c.max_model_len},
            {"kv_tokens", c.kv_tokens}}},
          {"overheads",
           {{"request_seconds", c.request_seconds},
            {"seconds_per_prompt_token", c.seconds_per_prompt_token},
            {"reply_seconds", c.reply_seconds},
            {"streaming", curve(c.streaming)}}},
          {"fit",
           {{"body", curve(c.fit.body)},
            {"logits", curve(c.fit.logits)},
            {"seconds_per_decode_context", c.fit.seconds_per_decode_context},
            {"seconds_per_prefill_pair", c.fit.seconds_per_prefill_pair}}},
          {"error", {{"fitted", error(c.fitted)}, {"left_out", error(c.left_out)}}},
          {"points", std::move(points)}};
}

namespace {

// Reads what ToJson writes; the first thing that is not so is the error.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  double Number(const json& object, const char* key) {
    const json* value = Find(object, key);
    if (value == nullptr || !value->is_number()) return Complain(key, "a number"), 0.0;
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < 0) Complain(key, "a number of at least 0");
    return number;
  }
  int Int(const json& object, const char* key) {
    const double number = Number(object, key);
    if (number > 1e9) return Complain(key, "a smaller number"), 0;
    return static_cast<int>(number);
  }
  std::string Text(const json& object, const char* key) {
    const json* value = Find(object, key);
    if (value == nullptr || !value->is_string()) return Complain(key, "text"), std::string();
    return value->get<std::string>();
  }
  const json& Object(const json& object, const char* key) {
    static const json kEmpty = json::object();
    const json* value = Find(object, key);
    if (value != nullptr && value->is_object()) return *value;
    Complain(key, "an object");
    return kEmpty;
  }
  std::vector<double> Numbers(const json& object, const char* key) {
    const json* value = Find(object, key);
    if (value == nullptr || !value->is_array())
      return Complain(key, "a list"), std::vector<double>();
    std::vector<double> numbers;
    for (const json& one : *value) {
      if (!one.is_number() || !std::isfinite(one.get<double>())) {
        Complain(key, "a list of numbers");
        return {};
      }
      numbers.push_back(one.get<double>());
    }
    return numbers;
  }
  StepCurve Curve(const json& object, const char* key) {
    const json& value = Object(object, key);
    StepCurve curve{Numbers(value, "at"), Numbers(value, "seconds")};
    const bool rising = std::adjacent_find(curve.at.begin(), curve.at.end(),
                                           std::greater_equal<>()) == curve.at.end();
    if (curve.at.empty() || curve.at.size() != curve.seconds.size() || !rising) {
      Complain(key, "as many seconds as rising knots");
      return {};
    }
    return curve;
  }
  FitError Error(const json& object, const char* key) {
    const json& value = Object(object, key);
    return {Number(value, "median"), Number(value, "worst"), Text(value, "worst_at")};
  }
  Status status() const { return status_; }

 private:
  const json* Find(const json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }
  void Complain(const char* key, const char* what) {
    if (!status_) return;
    status_ = Fail(ErrorKind::kCorrupt,
                   "{}: '{}' must be {}; make the file again with tare bench --calibrate", source_,
                   key, what);
  }
  std::string source_;
  Status status_;
};

}  // namespace

Result<Calibration> CalibrationFromJson(const json& document, const std::string& source) {
  if (!document.is_object() || document.value("schema", json()) != "tare.calibration/1") {
    return Fail(ErrorKind::kCorrupt,
                "{}: not a calibration (schema tare.calibration/1); tare bench --calibrate makes "
                "one",
                source);
  }
  Reader read(source);
  Calibration c;
  const json& machine = read.Object(document, "machine");
  c.cpu = read.Text(machine, "cpu");
  c.threads = read.Int(machine, "threads");
  c.model = read.Text(document, "model");
  c.dtype = read.Text(document, "dtype");
  c.measured_at = read.Text(document, "measured_at");
  c.tare_version = read.Text(document, "tare_version");
  c.took_s = read.Number(document, "took_s");
  const json& engine = read.Object(document, "engine");
  c.max_num_seqs = read.Int(engine, "max_num_seqs");
  c.max_num_batched_tokens = read.Int(engine, "max_num_batched_tokens");
  c.prefill_chunk = read.Int(engine, "prefill_chunk");
  c.max_model_len = read.Int(engine, "max_model_len");
  c.kv_tokens = static_cast<std::uint64_t>(read.Number(engine, "kv_tokens"));
  const json& overheads = read.Object(document, "overheads");
  c.request_seconds = read.Number(overheads, "request_seconds");
  c.seconds_per_prompt_token = read.Number(overheads, "seconds_per_prompt_token");
  c.reply_seconds = read.Number(overheads, "reply_seconds");
  c.streaming = read.Curve(overheads, "streaming");
  const json& fit = read.Object(document, "fit");
  c.fit.body = read.Curve(fit, "body");
  c.fit.logits = read.Curve(fit, "logits");
  c.fit.seconds_per_decode_context = read.Number(fit, "seconds_per_decode_context");
  c.fit.seconds_per_prefill_pair = read.Number(fit, "seconds_per_prefill_pair");
  const json& error = read.Object(document, "error");
  c.fitted = read.Error(error, "fitted");
  c.left_out = read.Error(error, "left_out");
  TARE_RETURN_IF_ERROR(read.status());
  return c;
}

Result<Calibration> LoadCalibration(const std::filesystem::path& path) {
  TARE_TRY(const std::string text, ReadFile(path));
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return CalibrationFromJson(document, path.string());
}

KnownError MeasuredStepTime::Error() const {
  // Never below the tolerance the whole simulation is held to against the live engine.
  constexpr double kRateTolerance = 0.10, kFirstTokenTolerance = 0.20;
  return {std::max(kRateTolerance, calibration_.left_out.median),
          std::max(kFirstTokenTolerance, calibration_.left_out.median),
          "calibration of this engine (docs/SIMULATION.md)"};
}

json MeasuredStepTime::Describe() const {
  const Calibration& c = calibration_;
  return {{"kind", "calibrated"},
          {"cpu", c.cpu},
          {"threads", c.threads},
          {"model", c.model},
          {"dtype", c.dtype},
          {"measured_at", c.measured_at},
          {"step_error_left_out", {{"median", c.left_out.median}, {"worst", c.left_out.worst}}}};
}

}  // namespace tare::sim
