#include "econ/run_points.h"

#include <limits>

namespace tare::econ {
namespace {

const nlohmann::json* Find(const nlohmann::json& from, std::initializer_list<const char*> path) {
  const nlohmann::json* at = &from;
  for (const char* key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

double NumberAt(const nlohmann::json& from, std::initializer_list<const char*> path,
                double fallback) {
  const nlohmann::json* value = Find(from, path);
  return value != nullptr && value->is_number() ? value->get<double>() : fallback;
}

std::string TextAt(const nlohmann::json& from, std::initializer_list<const char*> path) {
  const nlohmann::json* value = Find(from, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

}  // namespace

Result<LoadPoint> LoadPointFromRun(const nlohmann::json& run) {
  constexpr double kMissing = std::numeric_limits<double>::infinity();
  if (const std::string schema = TextAt(run, {"schema"}); schema != "tare.run/1") {
    return Fail(ErrorKind::kCorrupt, "is not a run record (schema '{}', 'tare.run/1' is wanted)",
                schema);
  }
  if (TextAt(run, {"validity", "verdict"}) != "valid") {
    return Fail(ErrorKind::kInvalidArgument,
                "is an invalid run: its figures do not describe the server; measure again");
  }
  LoadPoint point;
  point.requests_per_second = NumberAt(run, {"summary", "rates", "requests_per_s"}, 0);
  if (!(point.requests_per_second > 0)) {
    return Fail(ErrorKind::kInvalidArgument, "completed no request");
  }
  auto p95 = [&](const char* latency) {
    return NumberAt(run, {"summary", "latency_s", latency, "intended", "p95"}, kMissing);
  };
  point.ttft_p95_seconds = p95("ttft");
  point.itl_p95_seconds = p95("itl");
  point.e2e_p95_seconds = p95("e2e");
  const double goodput = NumberAt(run, {"summary", "rates", "goodput_per_s"}, kMissing);
  point.goodput_share =
      goodput < point.requests_per_second ? goodput / point.requests_per_second : 1;
  point.tag = TextAt(run, {"tag"}) == "simulated" ? "simulated" : "measured";
  return point;
}

}  // namespace tare::econ
