#include "load/server_process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "load/server_memory.h"
#include "net/event_loop.h"
#include "net/http_client.h"

extern char** environ;

namespace tare::load {
namespace {

// Between two looks at a starting server: the resolution of its stages.
constexpr Nanos kPoll = std::chrono::milliseconds(2);
constexpr Nanos kStopPatience = std::chrono::seconds(10);

int StatusOf(const net::Url& url) {
  net::ClientRequest request;
  request.url = url;
  request.total_timeout = std::chrono::seconds(5);
  const Result<net::ClientResponse> answer = net::FetchBlocking(std::move(request));
  return answer ? answer->head.status : 0;
}

}  // namespace

Result<ServerProcess> ServerProcess::Start(const std::vector<std::string>& command) {
  if (command.empty()) {
    return FailParam("command", "the command that starts the server is empty");
  }
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ServerProcess process;
  process.started_ = net::MonotonicNow();
  const int code =
      ::posix_spawnp(&process.pid_, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (code != 0) {
    process.pid_ = -1;
    return Fail(ErrorKind::kInvalidArgument, "cannot start '{}': {}", command[0],
                std::strerror(code));
  }
  return process;
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), started_(other.started_) {}

ServerProcess::~ServerProcess() { Stop(); }

bool ServerProcess::Running() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ > 0;
}

void ServerProcess::Stop() {
  if (!Running()) return;
  ::kill(pid_, SIGTERM);
  const Nanos patience = net::MonotonicNow() + kStopPatience;
  while (Running() && net::MonotonicNow() < patience) std::this_thread::sleep_for(kPoll);
  if (!Running()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

template <typename Done>
Result<double> ServerProcess::WaitFor(Nanos deadline, const char* what, const Done& done) {
  while (true) {
    if (done()) return ToSeconds(net::MonotonicNow() - started_);
    if (!Running()) {
      return Fail(ErrorKind::kUnavailable,
                  "the server ended before it was {}; run its command by hand to see why", what);
    }
    if (net::MonotonicNow() - started_ > deadline) {
      return Fail(ErrorKind::kDeadlineExceeded, "the server was not {} within {:.0f} s", what,
                  ToSeconds(deadline));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

Result<double> ServerProcess::WaitListening(const net::Url& base, Nanos deadline) {
  return WaitFor(deadline, "listening", [&] { return IsListening(base.port); });
}

Result<double> ServerProcess::WaitReady(const net::Url& base, Nanos deadline) {
  return WaitFor(deadline, "ready", [&] {
    int status = StatusOf(base.WithPath("/ready"));
    if (status == 404) status = StatusOf(base.WithPath("/health"));
    return status == 200;
  });
}

Result<std::uint16_t> FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!found) {
    return Fail(ErrorKind::kNetwork, "no free port on loopback: {}", std::strerror(error));
  }
  return ntohs(address.sin_port);
}

}  // namespace tare::load
