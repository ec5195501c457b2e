#include "load/local_server.h"

#include <deque>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "net/http_client.h"

namespace tare::load {
namespace {

// How often the log and /ready are looked at; bounds the error of time_to_ready.
constexpr auto kPollInterval = std::chrono::milliseconds(5);
constexpr std::size_t kLogLinesShown = 8;
constexpr std::size_t kLogReadLimit = std::size_t{64} << 20;
constexpr std::string_view kListening = "listening http";

std::string LastLines(const std::filesystem::path& log) {
  const auto text = ReadFile(log, kLogReadLimit);
  if (!text) return "";
  std::deque<std::string_view> lines;
  for (const std::string_view line : Split(*text, '\n')) {
    if (Trim(line).empty()) continue;
    lines.push_back(line);
    if (lines.size() > kLogLinesShown) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n  | "));
}

// "http://127.0.0.1:43210" once the log says so on a finished line, else empty.
std::string FindListening(const std::filesystem::path& log) {
  const auto text = ReadFile(log, kLogReadLimit);
  if (!text) return "";
  const std::size_t at = text->find(kListening);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + kListening.size() - std::string_view("http").size();
  const std::size_t end = text->find_first_of(" \t\r\n", begin);
  return end == std::string::npos ? "" : text->substr(begin, end - begin);
}

bool AnswersReady(const net::Url& url) {
  net::ClientRequest request;
  request.url = url.WithPath("/ready");
  request.connect_timeout = std::chrono::seconds(1);
  request.total_timeout = std::chrono::seconds(2);
  const auto response = net::FetchBlocking(std::move(request));
  return response && response->head.status == 200;
}

}  // namespace

Result<LocalServer> LocalServer::Start(const LocalServerOptions& options) {
  TARE_TRY(ChildProcess process, ChildProcess::Start(options.command, options.log));
  LocalServer server(std::move(process));
  server.log_ = options.log;
  server.drain_timeout_ = options.drain_timeout;
  TARE_RETURN_IF_ERROR(server.WaitUntilReady(options));
  return server;
}

Status LocalServer::WaitUntilReady(const LocalServerOptions& options) {
  const SteadyClock clock;
  const Nanos started = clock.Now();
  net::Url address;
  while (true) {
    if (options.cancelled && options.cancelled()) {
      process_.Kill();
      return Fail(ErrorKind::kCancelled, "stopped while the server was starting");
    }
    if (!running()) {
      return Fail(ErrorKind::kUnavailable, "{}",
                  DescribeEnd("the server ended before it was ready"));
    }
    if (url_.empty()) {
      url_ = FindListening(log_);
      if (!url_.empty()) {
        TARE_TRY(address, net::ParseUrl(url_));
      }
    }
    if (!url_.empty() && AnswersReady(address)) break;
    if (clock.Now() - started > options.ready_timeout) {
      process_.Kill();
      const char* what = url_.empty() ? "never said where it listens" : "did not become ready";
      return Fail(ErrorKind::kDeadlineExceeded, "{}",
                  DescribeEnd(fmt::format("the server {} within {} s", what,
                                          ToSeconds(options.ready_timeout))));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  time_to_ready_ = clock.Now() - started;
  return {};
}

LocalServer::~LocalServer() {
  if (process_.pid() < 0) return;
  if (Status stopped = Stop(); !stopped) LogWarn("{}", stopped.error().message);
}

Status LocalServer::Stop() {
  if (process_.pid() < 0) return {};
  if (!running()) {
    return Fail(ErrorKind::kUnavailable, "{}",
                DescribeEnd("the server died while it was measured"));
  }
  if (process_.Stop(drain_timeout_)) return {};
  return Fail(ErrorKind::kDeadlineExceeded, "the server did not stop within {} s and was killed",
              ToSeconds(drain_timeout_));
}

std::string LocalServer::DescribeEnd(const std::string& what) const {
  const std::string how =
      process_.pid() < 0 ? fmt::format(" ({})", process_.HowItEnded()) : std::string();
  const std::string lines = LastLines(log_);
  return fmt::format("{}{}; the last lines of its log, {}:\n  | {}", what, how, log_.string(),
                     lines.empty() ? "(nothing)" : lines);
}

}  // namespace tare::load
