// Test helper: a real PostgreSQL server of its own, in a temporary folder and on a Unix socket
// only; it ends with the object. The binaries come from Debian's package postgresql.
#pragma once

#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tare::store {

class TestPostgres {
 public:
  // Null when the server is not installed, or cannot run here; `why` says what is missing.
  static std::unique_ptr<TestPostgres> Start(std::string& why) {
    const std::filesystem::path bin = FindBinaries();
    if (bin.empty()) {
      why = "PostgreSQL is not here: apt-get install postgresql";
      return nullptr;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-pg-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) return nullptr;
    std::unique_ptr<TestPostgres> server(new TestPostgres(pattern));
    // The server refuses to run as root.
    if (::geteuid() == 0) {
      const passwd* user = ::getpwnam("postgres");
      if (user == nullptr) {
        why = "there is no user 'postgres' to run the server as";
        return nullptr;
      }
      server->user_ = user->pw_uid;
      server->group_ = user->pw_gid;
      if (::chown(pattern.c_str(), server->user_, server->group_) != 0) return nullptr;
    }
    const std::string data = pattern + "/data";
    const pid_t init = server->Spawn({(bin / "initdb").string(), "-D", data, "-A", "trust", "-N",
                                      "-E", "UTF8", "-U", "postgres", "--no-locale"});
    int status = 0;
    if (::waitpid(init, &status, 0) != init || status != 0) {
      why = "initdb failed";
      return nullptr;
    }
    server->pid_ =
        server->Spawn({(bin / "postgres").string(), "-D", data, "-k", pattern, "-c",
                       "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=100"});
    while (PQping(server->Url().c_str()) != PQPING_OK) {
      if (::waitpid(server->pid_, &status, WNOHANG) != 0) {
        server->pid_ = -1;
        why = "the server ended at once";
        return nullptr;
      }
      std::this_thread::yield();
    }
    return server;
  }
  ~TestPostgres() {
    if (pid_ > 0) {
      ::kill(pid_, SIGQUIT);
      int status = 0;
      ::waitpid(pid_, &status, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestPostgres(const TestPostgres&) = delete;
  TestPostgres& operator=(const TestPostgres&) = delete;

  std::string Url() const { return "postgresql://postgres@/postgres?host=" + folder_; }
  pid_t pid() const { return pid_; }

 private:
  explicit TestPostgres(std::string folder) : folder_(std::move(folder)) {}

  static std::filesystem::path FindBinaries() {
    std::filesystem::path newest;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/usr/lib/postgresql", error)) {
      if (std::filesystem::exists(entry.path() / "bin" / "initdb", error)) {
        newest = std::max(newest, entry.path() / "bin");
      }
    }
    return newest;
  }

  pid_t Spawn(const std::vector<std::string>& command) const {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const std::string log = folder_ + "/log";
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    if (group_ != 0 && (::setgid(group_) != 0 || ::setuid(user_) != 0)) ::_exit(126);
    if (::chdir(folder_.c_str()) != 0 || std::freopen(log.c_str(), "a", stdout) == nullptr ||
        std::freopen(log.c_str(), "a", stderr) == nullptr) {
      ::_exit(126);
    }
    ::execv(words[0], words.data());
    ::_exit(127);
  }

  const std::string folder_;
  uid_t user_ = 0;
  gid_t group_ = 0;
  pid_t pid_ = -1;
};

}  // namespace tare::store
