// What the gateway costs: added latency, CPU a request, streams, memory; nginx beside it.
//
// A fake upstream and the client run in this process, the gateway and nginx as processes of their
// own on loopback. Latency is taken from the intended start of an open-loop arrival at a constant
// rate, straight to the upstream and through each proxy in turn; "added" is the difference of the
// same percentile. The gateway has metrics, access log, a key, and quotas that are kept on.
//
//   gateway_bench --tare build/apps/tare/tare [--rate 2500] [--duration 10] [--rounds 3]
//                [--parts small,stream] [--wait-quiet 60] [--json]
//
// At the end a table says which bars were met, what share failed, and how busy others kept the
// machine: percentiles of a machine that others use are of that machine.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "gateway/bars.h"
#include "gateway/fake_upstream.h"
#include "gateway/load.h"
#include "gateway/neighbours.h"
#include "gateway/proxy_process.h"
#include "net/url.h"

namespace tare::bench {
namespace {

constexpr const char* kKey = "sk-bench";
constexpr std::size_t kLargePrompt = 220 * 1024;
// With less than this of others' work a core is the benchmark's own, as good as.
constexpr double kQuietCores = 0.15;

struct Words {
  std::string tare = "build/tare";
  std::string nginx = "/usr/sbin/nginx";
  double rate = 2500;
  double large_rate = 50;
  double duration_s = 10;
  int rounds = 3;
  int streams = 5000;
  double quiet_s = 0;              // longest wait for others to use less than kQuietCores
  std::vector<std::string> parts;  // empty: all
  bool json = false;

  bool Wants(const char* part) const {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  }
};

// Where requests go: straight to the upstream, or through a proxy.
struct Way {
  std::string name;
  net::Url url;
  ProxyProcess* process = nullptr;  // null: straight
};

std::string Body(std::size_t prompt_bytes, bool stream) {
  std::string prompt;
  while (prompt.size() < prompt_bytes) prompt += "The quick brown fox jumps over the lazy dog. ";
  nlohmann::json body = {{"model", "m"},
                         {"stream", stream},
                         {"max_tokens", 16},
                         {"messages", {{{"role", "user"}, {"content", prompt}}}}};
  return body.dump();
}

Status WriteTareConfig(const std::filesystem::path& dir, const std::string& upstream) {
  return WriteFileAtomic(
      dir / "tare.yaml",
      fmt::format(
          "upstreams:\n  fake: {{url: '{}', max_concurrent: 20000, gap_timeout: 60s}}\n"
          "models:\n  m: {{price: {{input: 0.15, output: 0.6}}, targets: [{{upstream: fake}}]}}\n"
          "tenants:\n  t: {{requests_per_minute: 100000000, tokens_per_minute: 100000000000,"
          " usd_per_month: 1000000}}\n"
          "keys:\n  - {{name: bench, tenant: t, key_env: TARE_BENCH_KEY}}\n"
          "access_log: {}\nquota_store: {}\n",
          upstream, (dir / "access.log").string(), (dir / "quotas.db").string()));
}

Status WriteNginxConfig(const std::filesystem::path& dir, const net::Url& upstream, int port) {
  return WriteFileAtomic(
      dir / "nginx.conf",
      fmt::format("daemon off; worker_processes 1; pid {0}/nginx.pid; error_log {0}/error.log;\n"
                  "events {{ worker_connections 20000; }}\n"
                  "http {{ access_log {0}/nginx-access.log; client_max_body_size 16m;\n"
                  "  client_body_buffer_size 512k; client_body_temp_path {0}/body;\n"
                  "  proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u;\n"
                  "  scgi_temp_path {0}/s; keepalive_requests 1000000;\n"
                  "  upstream fake {{ server 127.0.0.1:{1}; keepalive 1024; }}\n"
                  "  server {{ listen 127.0.0.1:{2};\n"
                  "    location /ready {{ return 200; }}\n"
                  "    location / {{ proxy_pass http://fake; proxy_http_version 1.1;\n"
                  "      proxy_set_header Connection ''; proxy_buffering off; }} }} }}\n",
                  dir.string(), upstream.port, port));
}

struct Measured {
  LoadResult load;
  double cpu_us_per_request = 0;
};

Result<Measured> Measure(const Way& way, LoadOptions options) {
  options.url = way.url;
  options.key = kKey;
  const double before = way.process != nullptr ? way.process->CpuSeconds() : 0;
  Measured measured;
  TARE_TRY(measured.load, RunLoad(options));
  if (way.process != nullptr) {
    measured.cpu_us_per_request = (way.process->CpuSeconds() - before) * 1e6 /
                                  static_cast<double>(std::max<std::uint64_t>(1, measured.load.ok));
  }
  if (measured.load.failed > 0) {
    fmt::print(stderr, "{}: {} failed, first: {}\n", way.name, measured.load.failed,
               measured.load.first_failure);
  }
  return measured;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double Milliseconds(const LoadResult& load, double q) { return load.latency.Quantile(q) / 1e6; }

// Rounds of every way in turn, so that a noisy moment hits all; medians over the rounds.
Result<nlohmann::json> Latencies(const char* what, const std::vector<Way>& ways,
                                 const LoadOptions& options, int rounds, bool print) {
  std::vector<std::vector<double>> p50(ways.size()), p99(ways.size()), cpu(ways.size());
  std::vector<std::uint64_t> ok(ways.size()), failed(ways.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      TARE_TRY(const Measured measured, Measure(ways[i], options));
      p50[i].push_back(Milliseconds(measured.load, 0.5));
      p99[i].push_back(Milliseconds(measured.load, 0.99));
      cpu[i].push_back(measured.cpu_us_per_request);
      ok[i] += measured.load.ok;
      failed[i] += measured.load.failed;
    }
  }
  nlohmann::json out = {{"what", what}, {"rate", options.rate}, {"ways", nlohmann::json::array()}};
  if (print) fmt::print("{} at {:.0f} requests/s\n", what, options.rate);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<double> added50, added99;
    for (int round = 0; round < rounds; ++round) {
      const auto r = static_cast<std::size_t>(round);
      added50.push_back(p50[i][r] - p50[0][r]);
      added99.push_back(p99[i][r] - p99[0][r]);
    }
    const nlohmann::json row = {{"name", ways[i].name},
                                {"p50_ms", Median(p50[i])},
                                {"p99_ms", Median(p99[i])},
                                {"added_p50_ms", Median(added50)},
                                {"added_p99_ms", Median(added99)},
                                {"cpu_us_per_request", Median(cpu[i])},
                                {"ok", ok[i]},
                                {"failed", failed[i]}};
    out["ways"].push_back(row);
    if (!print) continue;
    fmt::print("  {:8}  p50 {:7.3f} ms  p99 {:7.3f} ms", ways[i].name, Median(p50[i]),
               Median(p99[i]));
    if (i > 0) {
      fmt::print("  added p50 {:6.3f}  p99 {:6.3f}  cpu {:5.1f} us/request", Median(added50),
                 Median(added99), Median(cpu[i]));
    }
    fmt::print("{}\n", failed[i] > 0 ? fmt::format("  FAILED {}", failed[i]) : "");
  }
  return out;
}

Result<nlohmann::json> Chunks(const std::vector<Way>& ways, bool print) {
  nlohmann::json out = nlohmann::json::array();
  if (print) fmt::print("chunks through, 8 streams of 2,000 tokens, five times each\n");
  for (const Way& way : ways) {
    LoadOptions options;
    options.body = Body(100, true);
    options.streams = 8;
    options.repeats = 5;
    const double before = way.process != nullptr ? way.process->CpuSeconds() : 0;
    TARE_TRY(const Measured measured, Measure(way, options));
    const auto chunks = static_cast<double>(measured.load.chunks);
    const double cpu = way.process != nullptr ? way.process->CpuSeconds() - before : 0;
    out.push_back({{"name", way.name},
                   {"chunks_per_s", chunks / measured.load.seconds},
                   {"chunks_per_cpu_s", cpu > 0 ? chunks / cpu : 0},
                   {"ok", measured.load.ok},
                   {"failed", measured.load.failed}});
    if (print) {
      fmt::print("  {:8}  {:9.0f} chunks/s  {}\n", way.name, chunks / measured.load.seconds,
                 cpu > 0 ? fmt::format("{:9.0f} per second of its CPU", chunks / cpu) : "");
    }
  }
  return out;
}

Result<nlohmann::json> Streams(const std::vector<Way>& ways, int streams, bool print) {
  nlohmann::json out = nlohmann::json::array();
  if (print) fmt::print("{} streams at once, a token a second for ten seconds\n", streams);
  for (const Way& way : ways) {
    LoadOptions options;
    options.body = Body(100, true);
    options.streams = streams;
    double rss = 0;
    std::atomic<bool> ended{false};
    std::thread watcher([&] {
      while (!ended.load() && way.process != nullptr) {
        rss = std::max(rss, way.process->RssMiB());
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
    auto measured = Measure(way, options);
    ended = true;
    watcher.join();
    if (!measured) return tl::unexpected(measured.error());
    out.push_back({{"name", way.name},
                   {"streams", streams},
                   {"ok", measured->load.ok},
                   {"failed", measured->load.failed},
                   {"p99_s", Milliseconds(measured->load, 0.99) / 1e3},
                   {"peak_rss_mib", rss}});
    if (print) {
      fmt::print("  {:8}  {} whole, {} failed, p99 of the whole stream {:.2f} s, RSS {:.0f} MiB\n",
                 way.name, measured->load.ok, measured->load.failed,
                 Milliseconds(measured->load, 0.99) / 1e3, rss);
    }
  }
  return out;
}

// Until others leave the machine alone for two seconds, or the patience ends.
void WaitForQuiet(Neighbours& neighbours, double patience_s) {
  const SteadyClock clock;
  const Nanos end = clock.Now() + FromSeconds(patience_s);
  while (clock.Now() < end) {
    neighbours.Cores();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    const double cores = neighbours.Cores();
    if (cores < kQuietCores) return;
    fmt::print(stderr, "waiting: other programs use {:.2f} cores\n", cores);
  }
}

Status Run(const Words& words, const std::filesystem::path& dir) {
  ::setenv("TARE_BENCH_KEY", kKey, 1);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  TARE_TRY(const auto upstream, FakeUpstream::Start());
  TARE_TRY(net::Url straight, net::ParseUrl(upstream->Url()));
  TARE_RETURN_IF_ERROR(WriteTareConfig(dir, upstream->Url()));
  const int port = FreePort();
  const std::string base = fmt::format("http://127.0.0.1:{}", port);
  TARE_TRY(const auto tare,
           ProxyProcess::Start({words.tare, "serve", "--config", (dir / "tare.yaml").string(),
                                "--port", std::to_string(port)},
                               base + "/ready", (dir / "tare.log").string()));
  TARE_TRY(net::Url through, net::ParseUrl(base));
  constexpr std::string_view kPath = "/v1/chat/completions";
  std::vector<Way> ways = {{"straight", straight.WithPath(kPath)},
                           {"tare", through.WithPath(kPath), tare.get()}};
  std::unique_ptr<ProxyProcess> nginx;
  if (std::filesystem::exists(words.nginx)) {
    const int nginx_port = FreePort();
    TARE_RETURN_IF_ERROR(WriteNginxConfig(dir, straight, nginx_port));
    const std::string nginx_base = fmt::format("http://127.0.0.1:{}", nginx_port);
    TARE_TRY(nginx, ProxyProcess::Start({words.nginx, "-c", (dir / "nginx.conf").string()},
                                        nginx_base + "/ready", (dir / "nginx.log").string()));
    TARE_TRY(net::Url url, net::ParseUrl(nginx_base));
    ways.push_back({"nginx", url.WithPath(kPath), nginx.get()});
  }

  Neighbours neighbours(
      [&] { return tare->CpuSeconds() + (nginx != nullptr ? nginx->CpuSeconds() : 0); });
  WaitForQuiet(neighbours, words.quiet_s);
  nlohmann::json out = {{"idle_rss_mib", tare->RssMiB()}};
  const bool print = !words.json;
  std::vector<double> others;  // cores, of each part
  const auto part = [&](const char* name, auto&& run) -> Status {
    if (!words.Wants(name)) return {};
    neighbours.Cores();
    TARE_TRY(out[name], run());
    others.push_back(neighbours.Cores());
    return {};
  };
  LoadOptions small;
  small.body = Body(200, false);
  small.rate = words.rate;
  small.duration = FromSeconds(words.duration_s);
  TARE_RETURN_IF_ERROR(part("small", [&] {
    upstream->Answer({1, {}});
    return Latencies("200 B prompts, whole answers", ways, small, words.rounds, print);
  }));
  TARE_RETURN_IF_ERROR(part("stream", [&] {
    LoadOptions stream = small;
    stream.body = Body(200, true);
    upstream->Answer({4, {}});
    return Latencies("200 B prompts, streams of 4", ways, stream, words.rounds, print);
  }));
  TARE_RETURN_IF_ERROR(part("large", [&] {
    LoadOptions large = small;
    large.body = Body(kLargePrompt, false);
    large.rate = words.large_rate;
    upstream->Answer({1, {}});
    return Latencies("220 KB prompts, whole answers", ways, large, words.rounds, print);
  }));
  TARE_RETURN_IF_ERROR(part("chunks", [&] {
    upstream->Answer({2000, {}});
    return Chunks(ways, print);
  }));
  TARE_RETURN_IF_ERROR(part("streams", [&] {
    upstream->Answer({10, std::chrono::seconds(1)});
    return Streams(ways, words.streams, print);
  }));
  double sum = 0;
  for (const double cores : others) sum += cores;
  out["machine"] = {
      {"cores", std::thread::hardware_concurrency()},
      {"others_cores", others.empty() ? 0 : sum / static_cast<double>(others.size())},
      {"others_cores_worst", others.empty() ? 0 : *std::max_element(others.begin(), others.end())}};
  const std::vector<Bar> bars = JudgeBars(out);
  for (const Bar& bar : bars) {
    out["bars"].push_back(
        {{"what", bar.what}, {"asked", bar.asked}, {"seen", bar.seen}, {"met", bar.met}});
  }
  fmt::print("{}", print ? "\n" + BarTable(bars, out) : out.dump(2) + "\n");
  return {};
}

}  // namespace
}  // namespace tare::bench

int main(int argc, char** argv) {
  tare::bench::Words words;
  CLI::App app("What the gateway adds to latency, CPU and memory");
  app.add_option("--tare", words.tare, "The tare program")->capture_default_str();
  app.add_option("--nginx", words.nginx, "Measured beside it when it exists")
      ->capture_default_str();
  app.add_option("--rate", words.rate, "Requests a second")->capture_default_str();
  app.add_option("--large-rate", words.large_rate, "The same with 220 KB prompts")
      ->capture_default_str();
  app.add_option("--duration", words.duration_s, "Seconds of each run")->capture_default_str();
  app.add_option("--rounds", words.rounds, "Runs of each; medians are shown")
      ->capture_default_str();
  app.add_option("--streams", words.streams, "At once")->capture_default_str();
  app.add_option("--parts", words.parts, "Only these: small, stream, large, chunks, streams")
      ->delimiter(',')
      ->check(CLI::IsMember({"small", "stream", "large", "chunks", "streams"}));
  app.add_option("--wait-quiet", words.quiet_s,
                 "Seconds to wait at most for other programs to use less than 0.15 cores")
      ->capture_default_str();
  app.add_flag("--json", words.json, "One document on stdout");
  CLI11_PARSE(app, argc, argv);
  std::string pattern =
      (std::filesystem::temp_directory_path() / "tare-gateway-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return 3;
  const tare::Status status = tare::bench::Run(words, pattern);
  if (!status) fmt::print(stderr, "error: {}\n", status.error().message);
  if (status) std::filesystem::remove_all(pattern);
  return status ? 0 : 3;
}
