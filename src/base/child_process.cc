#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace tare {
namespace {

constexpr Nanos kPollInterval = std::chrono::milliseconds(2);
constexpr Nanos kDestructorPatience = std::chrono::seconds(10);

// In the child, between fork and exec: only async-signal-safe calls. `log_fd` below zero: stdout is
// discarded, stderr stays.
[[noreturn]] void Become(char* const* argv, int log_fd, int null_in, int null_out, int error_fd,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {  // else the parent died before the line above
    ::dup2(null_in, STDIN_FILENO);
    ::dup2(log_fd < 0 ? null_out : log_fd, STDOUT_FILENO);
    if (log_fd >= 0) ::dup2(log_fd, STDERR_FILENO);
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

}  // namespace

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command,
                                         const std::filesystem::path& log) {
  if (command.empty()) return FailParam("command", "the command to start is empty");
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const Descriptor log_fd(
      log.empty() ? -1 : ::open(log.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  if (!log.empty() && log_fd.get() < 0) {
    return Fail(ErrorKind::kIo, "cannot write the log '{}': {}", log.string(),
                std::strerror(errno));
  }
  const Descriptor null_in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor null_out(::open("/dev/null", O_WRONLY | O_CLOEXEC));
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
  if (pid == 0) {
    Become(argv.data(), log_fd.get(), null_in.get(), null_out.get(), write_end.get(), parent);
  }
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
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), exit_status_(other.exit_status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  exit_status_ = other.exit_status_;
  return *this;
}

ChildProcess::~ChildProcess() { Stop(kDestructorPatience); }

bool ChildProcess::WaitForExit(Nanos limit) {
  if (pid_ < 0) return true;
  const SteadyClock clock;
  const Nanos deadline = clock.Now() + limit;
  while (true) {
    // Left to be waited for, so that its number is its own until its group is gone too.
    siginfo_t ended{};
    const int got = ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (got == 0 && ended.si_pid == pid_) {
      Kill();  // whatever it left behind in its group
      return true;
    }
    if (got < 0 && errno == ECHILD) {  // somebody else waited: the number may be another's now
      pid_ = -1;
      return true;
    }
    if (clock.Now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

bool ChildProcess::Running() { return !WaitForExit(Nanos(0)); }

bool ChildProcess::Stop(Nanos patience) {
  if (!Running()) return true;
  ::kill(-pid_, SIGTERM);
  if (WaitForExit(patience)) return true;
  Kill();
  return false;
}

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(pid_, &status, 0);
  } while (got < 0 && errno == EINTR);
  if (got == pid_) exit_status_ = status;
  pid_ = -1;
}

std::string ChildProcess::HowItEnded() const {
  if (!exit_status_) return "an unknown end";
  return WIFSIGNALED(*exit_status_) ? fmt::format("signal {}", WTERMSIG(*exit_status_))
                                    : fmt::format("exit code {}", WEXITSTATUS(*exit_status_));
}

}  // namespace tare
