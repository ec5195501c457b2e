#include "load/cold_start.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "load/chunk.h"
#include "load/figures.h"
#include "load/probe.h"
#include "load/server_memory.h"
#include "load/server_metrics.h"
#include "load/server_process.h"
#include "net/http_client.h"
#include "net/sse_parser.h"

namespace tare::load {
namespace {

using nlohmann::json;

Result<net::ClientResponse> Get(const net::Url& url) {
  net::ClientRequest request;
  request.url = url;
  request.total_timeout = std::chrono::seconds(5);
  return net::FetchBlocking(std::move(request));
}

// One streamed request: when it was sent and when its first token came.
struct FirstToken final : net::ClientHandler, net::SseSink {
  net::EventLoop* loop = nullptr;
  ChunkReader reader;
  net::SseParser sse;
  Nanos received{0}, sent{0}, first{0};
  std::string failure;
  int status = 0;

  void OnHead(const net::HttpResponseHead& head, const net::ClientTimes& times) override {
    status = head.status;
    sent = times.sent;
  }
  void OnBody(std::string_view piece, Nanos at) override {
    received = at;
    if (status == 200) static_cast<void>(sse.Feed(piece, *this));
  }
  void OnEvent(const net::SseEvent& event) override {
    const ChunkFacts facts = reader.Read(event.data);
    if (!facts.error.empty()) failure = facts.error;
    if (facts.bears_tokens && first == Nanos(0)) first = received;
  }
  void OnDone(const net::ClientTimes&) override {
    if (status != 200) failure = fmt::format("HTTP {}", status);
    if (first == Nanos(0) && failure.empty()) failure = "no token came";
    loop->Stop();
  }
  void OnFailure(const net::ClientFailure& f, const net::ClientTimes&) override {
    failure = f.error.message;
    loop->Stop();
  }
};

struct Answer {
  Nanos sent{0}, first{0};
};

Result<Answer> Ask(const RequestShape& shape, const Prompt& prompt, Nanos deadline) {
  net::ClientRequest request;
  request.method = "POST";
  request.url = shape.url;
  request.headers = shape.headers;
  request.body = MakeBody(shape, prompt);
  request.total_timeout = deadline;
  TARE_TRY(const std::unique_ptr<net::EventLoop> loop, net::EventLoop::Create());
  TARE_TRY(const std::unique_ptr<net::HttpClient> client, net::HttpClient::Create(loop.get(), {}));
  auto handler = std::make_shared<FirstToken>();
  handler->loop = loop.get();
  TARE_TRY([[maybe_unused]] const net::HttpClient::CallId id,
           client->Start(std::move(request), handler));
  loop->Run();
  if (!handler->failure.empty()) {
    return Fail(ErrorKind::kUnavailable, "the first request failed: {}", handler->failure);
  }
  return Answer{handler->sent, handler->first};
}

Result<std::string> FirstModelOf(const net::Url& base) {
  TARE_TRY(const net::ClientResponse response, Get(base.WithPath("/v1/models")));
  const json document = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (document.is_object() && document.contains("data") && document["data"].is_array() &&
      !document["data"].empty() && document["data"][0].is_object() &&
      document["data"][0].contains("id") && document["data"][0]["id"].is_string()) {
    return document["data"][0]["id"].get<std::string>();
  }
  return Fail(ErrorKind::kNotFound, "{} lists no model; name it with --model", base.Origin());
}

Result<ColdStart> StartOnce(const ColdStartOptions& options, const net::Url& base, int number) {
  if (IsListening(base.port)) {
    return Fail(ErrorKind::kUnavailable, "something listens on port {} already; stop it first",
                base.port);
  }
  TARE_TRY(ServerProcess process, ServerProcess::Start(options.command));
  ColdStart start;
  TARE_TRY(start.listening, process.WaitListening(base, options.deadline));
  TARE_TRY(start.ready, process.WaitReady(base, options.deadline));
  RequestShape shape;
  shape.url = base.WithPath("/v1/chat/completions");
  shape.headers = {{"Content-Type", "application/json"}};
  std::string model = options.model;
  if (model.empty()) {
    TARE_TRY(model, FirstModelOf(base));
  }
  shape.head_json = "{\"model\":" + json(model).dump() + ",\"stream\":true,\"temperature\":0";
  shape.exact_lengths = false;
  WorkloadSpec workload;
  workload.input_tokens = options.input_tokens;
  workload.output_tokens = options.output_tokens;
  workload.seed = static_cast<std::uint64_t>(number) + 1;
  const std::unique_ptr<PromptSource> prompts = MakeSyntheticPrompts(workload, {});
  TARE_TRY(const Answer first, Ask(shape, prompts->Make(0), options.deadline));
  start.first_token = ToSeconds(first.first - process.started());
  start.cold_ttft = ToSeconds(first.first - first.sent);
  std::vector<double> warm;
  for (int i = 0; i < options.warm_requests; ++i) {
    TARE_TRY(const Answer answer,
             Ask(shape, prompts->Make(static_cast<std::uint64_t>(i) + 1), options.deadline));
    warm.push_back(ToSeconds(answer.first - answer.sent));
  }
  std::sort(warm.begin(), warm.end());
  start.warm_ttft = SortedQuantile(warm, 0.5);
  start.rss_bytes = ReadMemory(ProcessTree(process.pid()), /*with_pss=*/false).rss_bytes;
  if (const auto metrics = Get(base.WithPath("/metrics")); metrics && metrics->head.status == 200) {
    for (const MetricSample& sample : ParsePrometheus(metrics->body)) {
      if (sample.name == "tare_startup_seconds") start.told[sample.labels] = sample.value;
    }
  }
  return start;
}

struct Spread {
  double median = 0, low = 0, high = 0;
};

Spread SpreadOf(const ColdStartResult& result, double ColdStart::*stage) {
  std::vector<double> values;
  for (const ColdStart& start : result.starts) values.push_back(start.*stage);
  std::sort(values.begin(), values.end());
  return {SortedQuantile(values, 0.5), values.front(), values.back()};
}

constexpr std::pair<const char*, double ColdStart::*> kStages[] = {
    {"listening", &ColdStart::listening},     {"ready", &ColdStart::ready},
    {"first_token", &ColdStart::first_token}, {"cold_ttft", &ColdStart::cold_ttft},
    {"warm_ttft", &ColdStart::warm_ttft},
};

double ColdToWarm(const ColdStartResult& result) {
  const double warm = SpreadOf(result, &ColdStart::warm_ttft).median;
  return warm > 0 ? SpreadOf(result, &ColdStart::first_token).median / warm : 0;
}

}  // namespace

Result<ColdStartResult> MeasureColdStart(const ColdStartOptions& options) {
  if (options.command.empty()) {
    return FailParam("command", "--cold-start needs the server's command after '--'");
  }
  if (options.times < 1 || options.times > 1000) {
    return FailParam("times", "--cold-start {} is out of range; give 1 to 1000", options.times);
  }
  TARE_TRY(const net::Url base, ParseTargetUrl(options.url));
  if (!IsLoopback(base.host)) {
    return FailParam("url", "--cold-start starts a server on this machine, '{}' is another",
                     base.host);
  }
  ColdStartResult result;
  for (int i = 0; i < options.times; ++i) {
    TARE_TRY(ColdStart start, StartOnce(options, base, i));
    result.starts.push_back(std::move(start));
  }
  return result;
}

std::string ColdStartTable(const ColdStartResult& result) {
  std::string out =
      fmt::format("{} starts; page cache as the machine has it\n  {:<14}{:>12}{:>12}{:>12}\n",
                  result.starts.size(), "ms", "median", "least", "most");
  for (const auto& [name, stage] : kStages) {
    const Spread s = SpreadOf(result, stage);
    out += fmt::format("  {:<14}{:>12.1f}{:>12.1f}{:>12.1f}\n", name, s.median * 1e3, s.low * 1e3,
                       s.high * 1e3);
  }
  out += fmt::format("  start to first token ÷ warm first token: {:.1f}\n", ColdToWarm(result));
  for (const auto& [stage, value] : result.starts.back().told) {
    out += fmt::format("  told by the server, last start: {} {:.1f} ms\n", stage, value * 1e3);
  }
  return out;
}

std::string ColdStartJson(const ColdStartResult& result) {
  json document = {{"schema", "tare.cold_start/1"}, {"starts", json::array()}};
  for (const ColdStart& start : result.starts) {
    json one = {{"rss_bytes", start.rss_bytes}, {"told", start.told}};
    for (const auto& [name, stage] : kStages) one[std::string(name) + "_s"] = start.*stage;
    document["starts"].push_back(std::move(one));
  }
  for (const auto& [name, stage] : kStages) {
    const Spread s = SpreadOf(result, stage);
    document["stages_s"][name] = {{"median", s.median}, {"min", s.low}, {"max", s.high}};
  }
  document["cold_to_warm"] = ColdToWarm(result);
  return document.dump(2);
}

}  // namespace tare::load
