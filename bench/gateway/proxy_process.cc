#include "gateway/proxy_process.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "net/http_client.h"

namespace tare::bench {

namespace {

constexpr int kReadyTries = 500;

// On a processor, of all its threads (Documentation/scheduler/sched-stats.rst), in nanoseconds
// where /proc/PID/stat counts hundredths of a second. Threads that ended meanwhile are not in it.
double CpuOf(pid_t pid) {
  double nanos = 0;
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream in(task.path() / "schedstat");
    double ran = 0;
    if (in >> ran) nanos += ran;
  }
  return nanos * 1e-9;
}

double RssOf(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/statm", pid));
  double total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace

Result<std::unique_ptr<ProxyProcess>> ProxyProcess::Start(const std::vector<std::string>& command,
                                                          const std::string& ready_url,
                                                          const std::string& log_file) {
  TARE_TRY(ChildProcess child, ChildProcess::Start(command, log_file));
  std::unique_ptr<ProxyProcess> process(new ProxyProcess(std::move(child)));
  TARE_TRY(const net::Url url, net::ParseUrl(ready_url));
  for (int i = 0; i < kReadyTries; ++i) {
    net::ClientRequest request;
    request.url = url;
    const auto answer = net::FetchBlocking(std::move(request));
    if (answer && answer->head.status == 200) return process;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Fail(ErrorKind::kUnavailable, "'{}' did not become ready; see '{}'", command[0], log_file);
}

std::vector<pid_t> ProxyProcess::Processes() const {
  std::vector<pid_t> all = {process_.pid()};
  std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", process_.pid()));
  for (pid_t child = 0; in >> child;) all.push_back(child);
  return all;
}

double ProxyProcess::CpuSeconds() const {
  double sum = 0;
  for (const pid_t pid : Processes()) sum += CpuOf(pid);
  return sum;
}

double ProxyProcess::RssMiB() const {
  double sum = 0;
  for (const pid_t pid : Processes()) sum += RssOf(pid);
  return sum;
}

int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int port = 0;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  ::close(fd);
  return port;
}

}  // namespace tare::bench
