#include "advise/local_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "net/http_client.h"

namespace tare::advise {
namespace {

// How often the log and /ready are looked at; bounds the error of time_to_ready.
constexpr auto kPollInterval = std::chrono::milliseconds(5);
constexpr std::size_t kLogLinesShown = 8;
constexpr std::size_t kLogReadLimit = std::size_t{64} << 20;
constexpr std::string_view kListening = "listening http";

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeServer(char* const* argv, int log_fd, int null_fd, int error_fd,
                               pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {  // else the parent died before the line above
    ::dup2(null_fd, STDIN_FILENO);
    ::dup2(log_fd, STDOUT_FILENO);
    ::dup2(log_fd, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(argv[0], argv);
  }
  const int why = errno;
  [[maybe_unused]] const ssize_t written = ::write(error_fd, &why, sizeof why);
  ::_exit(127);
}

// A descriptor closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

Result<pid_t> Spawn(const std::vector<std::string>& command, const std::filesystem::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const Descriptor log_fd(::open(log.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  if (log_fd.get() < 0) {
    return Fail(ErrorKind::kIo, "cannot write the server's log '{}': {}", log.string(),
                std::strerror(errno));
  }
  const Descriptor null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  // The child reports a failed exec through a pipe that a successful exec closes.
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return Fail(ErrorKind::kIo, "cannot make a pipe: {}", std::strerror(errno));
  }
  const Descriptor read_end(pipe_fds[0]);
  Descriptor write_end(pipe_fds[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Fail(ErrorKind::kResourceExhausted, "cannot start a process: {}", std::strerror(errno));
  }
  if (pid == 0) BecomeServer(argv.data(), log_fd.get(), null_fd.get(), write_end.get(), parent);
  write_end.Close();
  int why = 0;
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &why, sizeof why);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof why)) {
    ::waitpid(pid, nullptr, 0);
    return Fail(ErrorKind::kNotFound, "cannot run '{}': {}", command[0], std::strerror(why));
  }
  return pid;
}

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
  if (options.command.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "no command to start a server with");
  }
  LocalServer server;
  server.log_ = options.log;
  server.drain_timeout_ = options.drain_timeout;
  server.program_ = options.command[0];
  TARE_TRY(server.pid_, Spawn(options.command, options.log));
  TARE_RETURN_IF_ERROR(server.WaitUntilReady(options));
  return server;
}

Status LocalServer::WaitUntilReady(const LocalServerOptions& options) {
  const SteadyClock clock;
  const Nanos started = clock.Now();
  net::Url address;
  while (true) {
    if (options.cancelled && options.cancelled()) {
      Kill();
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
      Kill();
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

LocalServer::LocalServer(LocalServer&& other) noexcept { *this = std::move(other); }

LocalServer& LocalServer::operator=(LocalServer&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  exit_status_ = other.exit_status_;
  program_ = std::move(other.program_);
  url_ = std::move(other.url_);
  log_ = std::move(other.log_);
  time_to_ready_ = other.time_to_ready_;
  drain_timeout_ = other.drain_timeout_;
  return *this;
}

LocalServer::~LocalServer() {
  if (pid_ < 0) return;
  if (Status stopped = Stop(); !stopped) LogWarn("{}", stopped.error().message);
}

bool LocalServer::WaitForExit(Nanos limit) {
  if (pid_ < 0) return true;
  const SteadyClock clock;
  const Nanos deadline = clock.Now() + limit;
  while (true) {
    const pid_t got = ::waitpid(pid_, &exit_status_, WNOHANG);
    if (got == pid_ || (got < 0 && errno == ECHILD)) {
      ::kill(-pid_, SIGKILL);  // whatever it left behind in its group
      pid_ = -1;
      return true;
    }
    if (clock.Now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

bool LocalServer::running() { return !WaitForExit(Nanos(0)); }

Status LocalServer::Stop() {
  if (pid_ < 0) return {};
  if (!running()) {
    return Fail(ErrorKind::kUnavailable, "{}",
                DescribeEnd("the server died while it was measured"));
  }
  ::kill(-pid_, SIGTERM);
  if (WaitForExit(drain_timeout_)) return {};
  Kill();
  return Fail(ErrorKind::kDeadlineExceeded, "the server did not stop within {} s and was killed",
              ToSeconds(drain_timeout_));
}

void LocalServer::Kill() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, &exit_status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::string LocalServer::DescribeEnd(const std::string& what) const {
  std::string how;
  if (pid_ < 0) {
    how = WIFSIGNALED(exit_status_) ? fmt::format(" (signal {})", WTERMSIG(exit_status_))
                                    : fmt::format(" (exit code {})", WEXITSTATUS(exit_status_));
  }
  const std::string lines = LastLines(log_);
  return fmt::format("{}{}; the last lines of its log, {}:\n  | {}", what, how, log_.string(),
                     lines.empty() ? "(nothing)" : lines);
}

}  // namespace tare::advise
