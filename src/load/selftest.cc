#include "load/selftest.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "load/figures.h"
#include "load/generator.h"
#include "load/pacing_server.h"
#include "load/probe.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr double kHeldShare = 0.95;

// A pacing server, here or in a child that lives as long as this object.
class ServerUnderTest {
 public:
  static Result<ServerUnderTest> Start(const PacingOptions& options, bool separate) {
    ServerUnderTest server;
    if (!separate) {
      TARE_TRY(server.local_, PacingServer::Start(options));
      server.port_ = server.local_->port();
      return server;
    }
    int to_parent[2], to_child[2];
    if (::pipe(to_parent) != 0) return Fail(ErrorKind::kIo, "pipe: {}", std::strerror(errno));
    if (::pipe(to_child) != 0) {
      ::close(to_parent[0]);
      ::close(to_parent[1]);
      return Fail(ErrorKind::kIo, "pipe: {}", std::strerror(errno));
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(to_child[1]);
      ::close(to_parent[0]);
      Serve(options, to_parent[1], to_child[0]);
    }
    ::close(to_child[0]);
    ::close(to_parent[1]);
    server.child_ = child;
    server.keep_alive_ = to_child[1];
    std::uint16_t port = 0;
    const bool told = child > 0 && ::read(to_parent[0], &port, sizeof port) == sizeof port;
    ::close(to_parent[0]);
    if (!told) return Fail(ErrorKind::kInternal, "the pacing server did not start");
    server.port_ = port;
    return server;
  }

  ServerUnderTest(ServerUnderTest&& other) noexcept
      : local_(std::move(other.local_)),
        child_(std::exchange(other.child_, -1)),
        keep_alive_(std::exchange(other.keep_alive_, -1)),
        port_(other.port_) {}
  ServerUnderTest& operator=(ServerUnderTest&&) = delete;
  ~ServerUnderTest() {
    if (keep_alive_ >= 0) ::close(keep_alive_);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  ServerUnderTest() = default;

  // In the child: serves until the parent's end of the pipe closes, however the parent ends.
  [[noreturn]] static void Serve(const PacingOptions& options, int tell, int wait) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    {
      const auto server = PacingServer::Start(options);
      if (!server) ::_exit(1);
      const std::uint16_t port = (*server)->port();
      if (::write(tell, &port, sizeof port) != sizeof port) ::_exit(1);
      char byte = 0;
      while (::read(wait, &byte, 1) < 0 && errno == EINTR) {
      }
    }
    ::_exit(0);
  }

  std::unique_ptr<PacingServer> local_;
  pid_t child_ = -1;
  int keep_alive_ = -1;
  std::uint16_t port_ = 0;
};

struct Point {
  std::string what;
  int users = 1;
  Nanos gap{0};
  Nanos first_token{0};
  int tokens = 1;
  bool stream = true;
  double asked_chunks_per_s = 0;
};

struct Outcome {
  SelfTestPoint point;
  double requests_per_s_per_core = 0;
};

TimingError ErrorOf(const Histogram& h) {
  return {h.Quantile(0.5) * 1e-9, h.Quantile(0.99) * 1e-9, static_cast<double>(h.max()) * 1e-9,
          h.count()};
}

Result<Outcome> Measure(const SelfTestOptions& options, const Point& point) {
  PacingOptions pacing;
  pacing.gap = point.gap;
  pacing.first_token = point.first_token;
  TARE_TRY(const ServerUnderTest server, ServerUnderTest::Start(pacing, options.separate_process));

  RequestShape shape;
  TARE_TRY(const net::Url base, ParseTargetUrl(server.url()));
  shape.url = base.WithPath("/v1/chat/completions");
  shape.headers = {{"Content-Type", "application/json"}};
  shape.stream = point.stream;
  shape.head_json =
      point.stream ? "{\"model\":\"pacing\",\"stream\":true" : "{\"model\":\"pacing\"";
  shape.connect_timeout = std::chrono::seconds(20);
  WorkloadSpec workload;
  workload.input_tokens = 8;
  workload.output_tokens = point.tokens;
  workload.seed = 1;
  const std::unique_ptr<PromptSource> prompts = MakeSyntheticPrompts(workload, {});

  RunPlan plan;
  plan.arrival.users = point.users;
  plan.prompts = prompts.get();
  plan.read_stamps = point.stream;
  plan.start = net::MonotonicNow() + std::chrono::milliseconds(20);
  // Users start spread over the warm-up, so that all streams run when the window opens.
  plan.window_begin = plan.start + std::max(Nanos(std::chrono::milliseconds(500)),
                                            Nanos(point.users * std::int64_t{100'000}));
  plan.window_end = plan.window_begin + options.per_point;
  TARE_TRY(const std::unique_ptr<Generator> generator, Generator::Start(plan, shape));
  std::uint64_t most_in_flight = 0;
  while (net::MonotonicNow() < plan.window_end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    most_in_flight = std::max(most_in_flight, generator->counts().in_flight);
  }
  generator->StopIssuing();
  const Nanos give_up = net::MonotonicNow() + std::chrono::seconds(5);
  // Streams that are meant to outlive the window are cut; short ones may end.
  while (point.tokens < 10'000 && !generator->Idle() && net::MonotonicNow() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const Generator::Recording recording = generator->Finish();

  Outcome outcome;
  SelfTestPoint& p = outcome.point;
  p.what = point.what;
  p.streams = static_cast<int>(most_in_flight);
  p.asked_chunks_per_s = point.asked_chunks_per_s;
  double cpu = 0, wall = 0;
  for (const ThreadMeasurement& thread : recording.threads) {
    cpu += thread.cpu_s;
    wall = std::max(wall, thread.wall_s);
  }
  std::uint64_t chunks = 0, ok = 0, failed = 0;
  for (const SecondBucket& second : recording.recorder.seconds()) chunks += second.chunks;
  for (const RequestRecord& record : recording.recorder.requests()) {
    if (record.ok()) ++ok;
    if (!record.ok() && record.error != RequestError::kUnfinished) ++failed;
  }
  p.chunks_per_s =
      static_cast<double>(recording.recorder.window_tokens()) / ToSeconds(options.per_point);
  p.client_cores = wall > 0 ? cpu / wall : 0;
  p.chunks_per_s_per_core = cpu > 0 ? static_cast<double>(chunks) / cpu : 0;
  p.error = ErrorOf(recording.recorder.timing_error());
  p.held = failed == 0 && p.chunks_per_s >= kHeldShare * point.asked_chunks_per_s;
  outcome.requests_per_s_per_core = cpu > 0 ? static_cast<double>(ok) / cpu : 0;
  return outcome;
}

// Streams paced so that together they make `rate` chunks a second for longer than the window.
Point Paced(std::string what, int streams, double rate) {
  Point point;
  point.what = std::move(what);
  point.users = streams;
  point.gap = FromSeconds(streams / rate);
  point.first_token = std::chrono::milliseconds(1);
  point.tokens = 1'000'000;
  point.asked_chunks_per_s = rate;
  return point;
}

int AffordableStreams(int wanted, bool separate) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kOtherFiles = 100;
  const rlim_t per_stream = separate ? 1 : 2;
  const rlim_t most =
      limit.rlim_max > kOtherFiles ? (limit.rlim_max - kOtherFiles) / per_stream : 1;
  return static_cast<int>(std::min<rlim_t>(most, static_cast<rlim_t>(wanted)));
}

json ToJson(const TimingError& error) {
  return {{"p50", error.p50}, {"p99", error.p99}, {"max", error.max}, {"n", error.n}};
}

std::string Micros(double seconds) { return fmt::format("{:.0f}", seconds * 1e6); }

}  // namespace

Result<SelfTestResult> RunSelfTest(const SelfTestOptions& options) {
  const auto say = [&](const std::string& text) {
    if (options.say) options.say(text);
  };
  SelfTestResult result;
  const int streams = AffordableStreams(options.streams, options.separate_process);

  say("streamed chunks, as many as go");
  Point saturated;
  saturated.what = "saturated";
  saturated.users = 32;
  saturated.tokens = 2000;
  TARE_TRY(Outcome outcome, Measure(options, saturated));
  result.points.push_back(outcome.point);
  result.chunks_per_s_per_core = outcome.point.chunks_per_s_per_core;

  say("plain requests, as many as go");
  Point plain;
  plain.what = "plain requests";
  plain.users = 64;
  plain.stream = false;
  TARE_TRY(outcome, Measure(options, plain));
  result.requests_per_s_per_core = outcome.requests_per_s_per_core;

  // What one core of client and one of server can do together is bounded by the wall, too.
  const double ceiling = std::min(result.chunks_per_s_per_core, 150'000.0);
  for (const double share : {0.05, 0.25, 0.5}) {
    const double rate = std::round(share * ceiling / 100) * 100;
    say(fmt::format("{:.0f} chunks/s on 500 streams", rate));
    TARE_TRY(outcome, Measure(options, Paced("paced", std::min(500, streams), rate)));
    result.points.push_back(outcome.point);
    if (share == 0.5) result.timing_error = outcome.point.error;
  }

  say(fmt::format("{} streams at once", streams));
  TARE_TRY(outcome, Measure(options, Paced("many streams", streams, streams)));
  result.points.push_back(outcome.point);
  for (const SelfTestPoint& point : result.points) {
    if (point.held) result.streams = std::max(result.streams, point.streams);
  }
  return result;
}

std::string SelfTestTable(const SelfTestResult& result) {
  std::string out =
      fmt::format("{:<16}{:>9}{:>12}{:>12}{:>10}{:>15}{:>29}\n", "", "streams", "asked/s",
                  "chunks/s", "cores", "chunks/s/core", "timing error µs p50/p99/max");
  for (const SelfTestPoint& p : result.points) {
    out += fmt::format(
        "{:<16}{:>9}{:>12}{:>12.0f}{:>10.2f}{:>15.0f}{:>29}{}\n", p.what, p.streams,
        p.asked_chunks_per_s > 0 ? fmt::format("{:.0f}", p.asked_chunks_per_s) : "—",
        p.chunks_per_s, p.client_cores, p.chunks_per_s_per_core,
        fmt::format("{} / {} / {}", Micros(p.error.p50), Micros(p.error.p99), Micros(p.error.max)),
        p.held ? "" : "  not held");
  }
  out += fmt::format("\nceiling   {:.0f} streamed chunks/s and {:.0f} plain requests/s per core\n",
                     result.chunks_per_s_per_core, result.requests_per_s_per_core);
  out += fmt::format("streams   {} at once in one process\n", result.streams);
  out += fmt::format("timing    {} µs p50, {} µs p99 at half the ceiling\n",
                     Micros(result.timing_error.p50), Micros(result.timing_error.p99));
  return out;
}

std::string SelfTestJson(const SelfTestResult& result) {
  json points = json::array();
  for (const SelfTestPoint& p : result.points) {
    points.push_back({{"what", p.what},
                      {"streams", p.streams},
                      {"asked_chunks_per_s", p.asked_chunks_per_s},
                      {"chunks_per_s", p.chunks_per_s},
                      {"chunks_per_s_per_core", p.chunks_per_s_per_core},
                      {"client_cores", p.client_cores},
                      {"held", p.held},
                      {"timing_error_s", ToJson(p.error)}});
  }
  const json document = {{"chunks_per_s_per_core", result.chunks_per_s_per_core},
                         {"requests_per_s_per_core", result.requests_per_s_per_core},
                         {"streams", result.streams},
                         {"timing_error_s", ToJson(result.timing_error)},
                         {"points", std::move(points)}};
  return document.dump(2);
}

}  // namespace tare::load
