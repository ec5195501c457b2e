#include "gateway/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "api/json_text.h"
#include "base/rfc3339.h"

namespace tare::gateway {

namespace {

// Gathered before the writer looks again; at 2,500 requests a second some 100 lines.
constexpr auto kGather = std::chrono::milliseconds(50);
constexpr std::size_t kMaxWaiting = 8 * 1024 * 1024;  // bytes

Result<int> OpenFile(const std::string& path) {
  if (path == "-") return STDERR_FILENO;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd < 0) {
    return Fail(ErrorKind::kIo, "cannot open the access log '{}': {}", path, std::strerror(errno));
  }
  return fd;
}

void AppendText(std::string& out, const char* name, const std::string& value) {
  if (value.empty()) return;
  out.append(",\"").append(name).append("\":");
  api::AppendJsonString(out, value);
}

void AppendNumber(std::string& out, const char* name, std::int64_t value) {
  out.append(",\"").append(name).append("\":").append(fmt::format_int(value).c_str());
}

// With microseconds as its decimals.
void AppendMillis(std::string& out, const char* name, Nanos value) {
  const std::int64_t micros = std::max<std::int64_t>(0, (value.count() + 500) / 1000);
  AppendNumber(out, name, micros / 1000);
  const std::int64_t rest = micros % 1000;
  out.push_back('.');
  out.push_back(static_cast<char>('0' + rest / 100));
  out.push_back(static_cast<char>('0' + rest / 10 % 10));
  out.push_back(static_cast<char>('0' + rest % 10));
}

}  // namespace

std::string FormatAccess(const AccessRecord& record, std::chrono::system_clock::time_point now) {
  std::string out;
  out.reserve(320);
  out.append("{\"time\":\"").append(FormatRfc3339(now)).append("\"");
  AppendText(out, "id", record.id);
  AppendText(out, "peer", record.peer);
  AppendText(out, "method", record.method);
  AppendText(out, "path", record.path);
  AppendNumber(out, "status", record.status);
  AppendMillis(out, "duration_ms", record.duration);
  if (record.first_token > Nanos{}) AppendMillis(out, "ttft_ms", record.first_token);
  AppendText(out, "tenant", record.tenant);
  AppendText(out, "key", record.key);
  AppendText(out, "model", record.model);
  if (record.answered_by != record.model) AppendText(out, "answered_by", record.answered_by);
  if (!record.model.empty()) {
    out.append(record.batch ? ",\"tier\":\"batch\"" : ",\"tier\":\"interactive\"");
    out.append(record.stream ? ",\"stream\":true" : ",\"stream\":false");
  }
  if (record.usage.prompt_tokens > 0 || record.usage.completion_tokens > 0) {
    AppendNumber(out, "prompt_tokens", record.usage.prompt_tokens);
    AppendNumber(out, "cached_tokens", record.usage.cached_tokens);
    AppendNumber(out, "output_tokens", record.usage.completion_tokens);
  }
  AppendText(out, "error", record.error);
  out.append("}\n");
  return out;
}

struct AccessLog::Impl {
  std::string path;
  std::mutex mutex;  // guards waiting, stopping
  std::string waiting;
  bool stopping = false;
  std::condition_variable changed;
  std::mutex file_mutex;  // guards fd
  int fd = -1;
  std::atomic<std::uint64_t> dropped{0};
  std::thread writer;

  void WriteOut(std::string_view text) {
    std::lock_guard lock(file_mutex);
    while (!text.empty()) {
      const ssize_t n = ::write(fd, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        for (const char c : text) dropped += c == '\n' ? 1 : 0;
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  void Loop() {
    std::string taken;
    std::unique_lock lock(mutex);
    while (!stopping) {
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (!stopping) changed.wait_for(lock, kGather, [this] { return stopping; });
      taken.clear();
      taken.swap(waiting);
      lock.unlock();
      WriteOut(taken);
      lock.lock();
    }
    WriteOut(waiting);
  }
};

AccessLog::AccessLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AccessLog::~AccessLog() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->writer.join();
  if (impl_->fd != STDERR_FILENO) ::close(impl_->fd);
}

Result<std::shared_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  TARE_TRY(impl->fd, OpenFile(path));
  impl->writer = std::thread([log = impl.get()] { log->Loop(); });
  return std::shared_ptr<AccessLog>(new AccessLog(std::move(impl)));
}

void AccessLog::Write(const AccessRecord& record, std::chrono::system_clock::time_point now) {
  const std::string line = FormatAccess(record, now);
  bool wake = false;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->waiting.size() + line.size() > kMaxWaiting) {
      impl_->dropped.fetch_add(1);
      return;
    }
    wake = impl_->waiting.empty();
    impl_->waiting.append(line);
  }
  if (wake) impl_->changed.notify_one();
}

Status AccessLog::Reopen() {
  if (impl_->path == "-") return {};
  TARE_TRY(const int fd, OpenFile(impl_->path));
  int old = fd;
  {
    std::lock_guard lock(impl_->file_mutex);
    std::swap(old, impl_->fd);
  }
  ::close(old);
  return {};
}

std::uint64_t AccessLog::dropped() const { return impl_->dropped.load(); }

}  // namespace tare::gateway
