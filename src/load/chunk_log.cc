#include "load/chunk_log.h"

#include <fcntl.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

namespace tare::load {
namespace {

// The longest row: 20 + 10 + 20 + 11 digits and separators.
constexpr std::size_t kLongestRow = 72;
constexpr std::size_t kSmallestBuffer = 256;
// Level 1: 300 MB/s and more, a third of the text (times and indices of neighbours are alike).
constexpr int kLevel = 1;

}  // namespace

struct ChunkLog::Impl {
  std::filesystem::path file;
  std::size_t buffer_bytes = 0;
  int fd = -1;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::thread writer;
  std::mutex mutex;  // guards waiting, closing, failure
  std::condition_variable came, went;
  std::deque<std::string> waiting;
  bool closing = false;
  std::string failure;
  std::uint64_t rows = 0, bytes = 0;  // the writer's until it has ended
  std::atomic<std::uint64_t> waits{0};
  bool closed = false;

  // One zstd frame; what goes wrong is kept for Close.
  std::string WriteFrame(ZSTD_CCtx* context, std::string& packed, const std::string& text) {
    packed.resize(ZSTD_compressBound(text.size()));
    const std::size_t size =
        ZSTD_compressCCtx(context, packed.data(), packed.size(), text.data(), text.size(), kLevel);
    if (ZSTD_isError(size) != 0) return ZSTD_getErrorName(size);
    for (std::size_t done = 0; done < size;) {
      const ssize_t n = ::write(fd, packed.data() + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return std::strerror(errno);
      done += static_cast<std::size_t>(n);
    }
    bytes += size;
    return {};
  }

  void Write() {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    std::string packed, why;
    while (true) {
      std::string text;
      {
        std::unique_lock lock(mutex);
        came.wait(lock, [&] { return closing || !waiting.empty(); });
        if (waiting.empty()) break;
        text = std::move(waiting.front());
        waiting.pop_front();
      }
      went.notify_one();
      if (why.empty()) why = WriteFrame(context, packed, text);
    }
    ZSTD_freeCCtx(context);
    const std::lock_guard lock(mutex);
    failure = why;
  }
};

ChunkLog::ChunkLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChunkLog::~ChunkLog() { static_cast<void>(Close()); }

Result<std::unique_ptr<ChunkLog>> ChunkLog::Open(const std::filesystem::path& file,
                                                 std::size_t buffer_bytes) {
  auto impl = std::make_unique<Impl>();
  impl->file = file;
  impl->buffer_bytes = std::max(buffer_bytes, kSmallestBuffer);
  std::error_code code;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), code);
  impl->fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (impl->fd < 0) {
    return Fail(ErrorKind::kIo, "cannot write '{}': {}", file.string(), std::strerror(errno));
  }
  impl->waiting.emplace_back("index,turn,t_s,tokens\n");
  impl->writer = std::thread([i = impl.get()] { i->Write(); });
  return std::unique_ptr<ChunkLog>(new ChunkLog(std::move(impl)));
}

ChunkLog::Lane::Lane(ChunkLog* log) : log_(log) { buffer_.reserve(log->impl_->buffer_bytes); }

void ChunkLog::Lane::Add(std::uint64_t index, std::uint32_t turn, Nanos after_start, int tokens) {
  const std::size_t full = log_->impl_->buffer_bytes;
  if (buffer_.size() + kLongestRow > full) {
    log_->Hand(std::move(buffer_));
    buffer_.clear();
    buffer_.reserve(full);
  }
  const std::int64_t nanos = std::max<std::int64_t>(0, after_start.count());
  fmt::format_to(std::back_inserter(buffer_), FMT_COMPILE("{},{},{}.{:09},{}\n"), index, turn,
                 nanos / 1'000'000'000, nanos % 1'000'000'000, tokens);
  ++rows_;
}

ChunkLog::Lane* ChunkLog::NewLane() {
  impl_->lanes.push_back(std::unique_ptr<Lane>(new Lane(this)));
  return impl_->lanes.back().get();
}

void ChunkLog::Hand(std::string buffer) {
  if (buffer.empty()) return;
  {
    std::unique_lock lock(impl_->mutex);
    if (impl_->waiting.size() >= kMostWaiting) {
      impl_->waits.fetch_add(1, std::memory_order_relaxed);
      impl_->went.wait(lock, [&] { return impl_->waiting.size() < kMostWaiting; });
    }
    impl_->waiting.push_back(std::move(buffer));
  }
  impl_->came.notify_one();
}

Status ChunkLog::Close() {
  if (!impl_->closed) {
    impl_->closed = true;
    for (const auto& lane : impl_->lanes) {
      impl_->rows += lane->rows_;
      Hand(std::move(lane->buffer_));
    }
    {
      const std::lock_guard lock(impl_->mutex);
      impl_->closing = true;
    }
    impl_->came.notify_one();
    impl_->writer.join();
    if (::close(impl_->fd) != 0 && impl_->failure.empty()) impl_->failure = std::strerror(errno);
  }
  if (impl_->failure.empty()) return {};
  return Fail(ErrorKind::kIo, "the chunks in '{}' are not complete: {}", impl_->file.string(),
              impl_->failure);
}

std::uint64_t ChunkLog::rows() const { return impl_->rows; }
std::uint64_t ChunkLog::bytes() const { return impl_->bytes; }
std::uint64_t ChunkLog::waits() const { return impl_->waits.load(std::memory_order_relaxed); }

}  // namespace tare::load
