#include "load/local_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "net/http_client.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;

// A server in the shape of `tare serve`: says where it listens, answers /ready. argv[1] is how it
// behaves.
constexpr const char* kFakeServer = R"(
import http.server, os, signal, sys
mode = sys.argv[1]
if mode == 'die':
    print('loading model', file=sys.stderr)
    print('cannot open model.gguf: no such file', file=sys.stderr)
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == '/ready' and mode != 'unready'
        self.send_response(200 if ok else 503)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *args):
        pass
if mode == 'stubborn':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
if mode != 'silent':
    print('listening http://127.0.0.1:%d' % server.server_port, file=sys.stderr, flush=True)
server.serve_forever()
)";

class LocalServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-server-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream(dir_ / "server.py") << kFakeServer;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  LocalServerOptions Options(const char* mode) const {
    LocalServerOptions options;
    options.command = {"python3", (dir_ / "server.py").string(), mode};
    options.log = dir_ / "server.log";
    options.ready_timeout = std::chrono::seconds(60);
    return options;
  }

  std::filesystem::path dir_;
};

bool Alive(int pid) { return ::kill(pid, 0) == 0; }

TEST_F(LocalServerTest, StartsAnswersStops) {
  auto server = LocalServer::Start(Options("good"));
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_THAT(server->url(), HasSubstr("http://127.0.0.1:"));
  EXPECT_GT(server->time_to_ready(), Nanos(0));
  EXPECT_TRUE(server->running());
  const int pid = server->pid();
  EXPECT_EQ(::getpgid(pid), pid);
  const Status stopped = server->Stop();
  EXPECT_TRUE(stopped) << stopped.error().message;
  EXPECT_FALSE(Alive(pid));
  EXPECT_TRUE(server->Stop());
}

TEST_F(LocalServerTest, AnEarlyDeathTellsTheEndOfTheLog) {
  const auto server = LocalServer::Start(Options("die"));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().kind, ErrorKind::kUnavailable);
  EXPECT_THAT(server.error().message, HasSubstr("ended before it was ready (exit code 3)"));
  EXPECT_THAT(server.error().message, HasSubstr("cannot open model.gguf: no such file"));
}

TEST_F(LocalServerTest, NeverReadyIsAnErrorAndLeavesNothingRunning) {
  LocalServerOptions options = Options("unready");
  options.ready_timeout = std::chrono::milliseconds(700);
  const auto unready = LocalServer::Start(options);
  ASSERT_FALSE(unready);
  EXPECT_EQ(unready.error().kind, ErrorKind::kDeadlineExceeded);
  options = Options("silent");
  options.ready_timeout = std::chrono::milliseconds(300);
  const auto silent = LocalServer::Start(options);
  ASSERT_FALSE(silent);
  EXPECT_THAT(silent.error().message, HasSubstr("never said where it listens"));
}

TEST_F(LocalServerTest, AProgramThatDoesNotExist) {
  LocalServerOptions options = Options("good");
  options.command = {(dir_ / "nothing").string()};
  const auto server = LocalServer::Start(options);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(server.error().message, HasSubstr("No such file"));
}

TEST_F(LocalServerTest, GivingUpKillsIt) {
  LocalServerOptions options = Options("silent");
  options.cancelled = [] { return true; };
  const auto server = LocalServer::Start(options);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().kind, ErrorKind::kCancelled);
}

TEST_F(LocalServerTest, OneThatIgnoresTermIsKilled) {
  LocalServerOptions options = Options("stubborn");
  options.drain_timeout = std::chrono::milliseconds(100);
  auto server = LocalServer::Start(options);
  ASSERT_TRUE(server) << server.error().message;
  const int pid = server->pid();
  EXPECT_FALSE(server->Stop());
  EXPECT_FALSE(Alive(pid));
}

TEST_F(LocalServerTest, TheDestructorStopsIt) {
  int pid = 0;
  {
    auto server = LocalServer::Start(Options("good"));
    ASSERT_TRUE(server) << server.error().message;
    pid = server->pid();
  }
  EXPECT_FALSE(Alive(pid));
}

// A process that starts a server and is killed takes the server with it.
TEST_F(LocalServerTest, OurDeathKillsIt) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    auto server = LocalServer::Start(Options("good"));
    const int pid = server ? server->pid() : -1;
    [[maybe_unused]] const ssize_t written = ::write(pipe_fds[1], &pid, sizeof pid);
    ::kill(::getpid(), SIGKILL);
  }
  int pid = 0;
  ASSERT_EQ(::read(pipe_fds[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_GT(pid, 0);
  ::waitpid(owner, nullptr, 0);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  // Its new parent reaps it soon after the kernel killed it; a zombie counts as dead.
  const auto dead = [pid] {
    const auto stat = ReadFile(std::filesystem::path("/proc") / std::to_string(pid) / "stat");
    return !stat || stat->find(") Z ") != std::string::npos;
  };
  for (int i = 0; i < 2000 && !dead(); ++i) ::usleep(1000);
  EXPECT_TRUE(dead());
}

}  // namespace
}  // namespace tare::load
