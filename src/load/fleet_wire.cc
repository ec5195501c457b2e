#include "load/fleet_wire.h"

#include <algorithm>

#include "load/words.h"

namespace tare::load {
namespace {

using nlohmann::json;

template <typename T>
void Read(const json& object, const char* key, T& value) {
  object.at(key).get_to(value);
}
void Read(const json& object, const char* key, Nanos& value) {
  value = Nanos(object.at(key).get<std::int64_t>());
}
void ReadPath(const json& object, const char* key, std::filesystem::path& value) {
  value = object.at(key).get<std::string>();
}

json ArrivalToJson(const ArrivalSpec& a) {
  return {{"kind", static_cast<int>(a.kind)},
          {"users", a.users},
          {"think_ns", a.think_time.count()},
          {"think_exponential", a.think_exponential},
          {"rate", a.rate},
          {"cv", a.cv},
          {"trace", a.trace.string()},
          {"speedup", a.speedup},
          {"trace_from_ns", a.trace_from.count()},
          {"trace_length_ns", a.trace_length.count()},
          {"burst_factor", a.burst_factor},
          {"burst_for_ns", a.burst_for.count()},
          {"burst_every_ns", a.burst_every.count()},
          {"ramp_to", a.ramp_to},
          {"ramp_over_ns", a.ramp_over.count()}};
}

ArrivalSpec ArrivalFromJson(const json& j) {
  ArrivalSpec a;
  a.kind = static_cast<ArrivalSpec::Kind>(
      std::clamp(j.at("kind").get<int>(), 0, static_cast<int>(ArrivalSpec::Kind::kTrace)));
  Read(j, "users", a.users);
  Read(j, "think_ns", a.think_time);
  Read(j, "think_exponential", a.think_exponential);
  Read(j, "rate", a.rate);
  Read(j, "cv", a.cv);
  ReadPath(j, "trace", a.trace);
  Read(j, "speedup", a.speedup);
  Read(j, "trace_from_ns", a.trace_from);
  Read(j, "trace_length_ns", a.trace_length);
  Read(j, "burst_factor", a.burst_factor);
  Read(j, "burst_for_ns", a.burst_for);
  Read(j, "burst_every_ns", a.burst_every);
  Read(j, "ramp_to", a.ramp_to);
  Read(j, "ramp_over_ns", a.ramp_over);
  return a;
}

json WorkloadToJson(const WorkloadSpec& w) {
  return {{"input_tokens", w.input_tokens},
          {"output_tokens", w.output_tokens},
          {"dataset", w.dataset.string()},
          {"shared_prefix", w.shared_prefix},
          {"max_input", w.max_input_tokens},
          {"max_output", w.max_output_tokens},
          {"turns", w.turns},
          {"turn_tokens", w.turn_tokens},
          {"seed", w.seed}};
}

WorkloadSpec WorkloadFromJson(const json& j) {
  WorkloadSpec w;
  Read(j, "input_tokens", w.input_tokens);
  Read(j, "output_tokens", w.output_tokens);
  ReadPath(j, "dataset", w.dataset);
  Read(j, "shared_prefix", w.shared_prefix);
  Read(j, "max_input", w.max_input_tokens);
  Read(j, "max_output", w.max_output_tokens);
  Read(j, "turns", w.turns);
  Read(j, "turn_tokens", w.turn_tokens);
  Read(j, "seed", w.seed);
  return w;
}

json ShapeToJson(const RequestShape& s) {
  json headers = json::array();
  for (const net::HttpHeader& header : s.headers) {
    if (header.name != "Authorization") headers.push_back({header.name, header.value});
  }
  return {{"url", s.url.Origin() + s.url.target},
          {"headers", std::move(headers)},
          {"head", s.head_json},
          {"chat", s.chat},
          {"stream", s.stream},
          {"exact_lengths", s.exact_lengths},
          {"request_timeout_ns", s.request_timeout.count()},
          {"connect_timeout_ns", s.connect_timeout.count()}};
}

Result<RequestShape> ShapeFromJson(const json& j) {
  RequestShape s;
  TARE_TRY(s.url, net::ParseUrl(j.at("url").get<std::string>()));
  for (const json& header : j.at("headers")) {
    s.headers.push_back({header.at(0).get<std::string>(), header.at(1).get<std::string>()});
  }
  Read(j, "head", s.head_json);
  Read(j, "chat", s.chat);
  Read(j, "stream", s.stream);
  Read(j, "exact_lengths", s.exact_lengths);
  Read(j, "request_timeout_ns", s.request_timeout);
  Read(j, "connect_timeout_ns", s.connect_timeout);
  return s;
}

json CalibrationToJson(const TokenCalibration& c) {
  json words = json::array();
  for (const std::string_view word : c.words) words.push_back(std::string(word));
  return {{"overhead", c.overhead},
          {"tokens_per_word", c.tokens_per_word},
          {"how", c.how},
          {"words", std::move(words)}};
}

TokenCalibration CalibrationFromJson(const json& j) {
  TokenCalibration c;
  Read(j, "overhead", c.overhead);
  Read(j, "tokens_per_word", c.tokens_per_word);
  Read(j, "how", c.how);
  // The texts belong to this program's own list.
  for (const json& word : j.at("words")) {
    const auto text = word.get<std::string>();
    const auto known = std::find(CommonWords().begin(), CommonWords().end(), text);
    if (known != CommonWords().end()) c.words.push_back(*known);
  }
  return c;
}

}  // namespace

json JobToJson(const FleetJob& job, const AgentPart& part) {
  return {{"arrival", ArrivalToJson(job.plan.arrival)},
          {"workload", WorkloadToJson(job.workload)},
          {"shape", ShapeToJson(job.shape)},
          {"calibration", CalibrationToJson(job.calibration)},
          {"seed", job.plan.seed},
          {"requests", part.requests},
          {"verify_tls", job.plan.verify_tls},
          {"sessions", job.plan.sessions},
          {"threads", part.threads},
          {"first_lane", part.first_lane},
          {"lanes", part.lanes}};
}

Result<FleetJob> JobFromJson(const json& j, AgentPart& part) {
  try {
    FleetJob job;
    job.plan.arrival = ArrivalFromJson(j.at("arrival"));
    job.workload = WorkloadFromJson(j.at("workload"));
    TARE_TRY(job.shape, ShapeFromJson(j.at("shape")));
    job.calibration = CalibrationFromJson(j.at("calibration"));
    Read(j, "seed", job.plan.seed);
    Read(j, "verify_tls", job.plan.verify_tls);
    Read(j, "sessions", job.plan.sessions);
    Read(j, "requests", part.requests);
    Read(j, "threads", part.threads);
    Read(j, "first_lane", part.first_lane);
    Read(j, "lanes", part.lanes);
    if (part.threads < 1 || part.threads > 1024 || part.first_lane < 0 ||
        part.lanes < part.first_lane + part.threads || part.lanes > 1 << 20) {
      return Fail(ErrorKind::kCorrupt, "the coordinator's plan deals impossible lanes");
    }
    job.plan.requests = part.requests;
    job.plan.threads = part.threads;
    job.plan.first_lane = part.first_lane;
    job.plan.lanes = part.lanes;
    return job;
  } catch (const json::exception& e) {
    return Fail(ErrorKind::kCorrupt, "the coordinator's plan cannot be read: {}", e.what());
  }
}

}  // namespace tare::load
