// Every token-bearing chunk of a run, on disk, in bounded memory: a CSV compressed with zstd
// (`zstdcat chunks.csv.zst`), columns
//
//   index,turn,t_s,tokens      of the request, of its session, seconds after the start, in the
//   chunk
//
// Each client thread fills a buffer of its own without a lock; full buffers go to a writer thread
// that compresses each into a frame of its own (frames that follow one another are one zstd file).
// At most kMostWaiting buffers wait: a thread that comes with one more waits for the disk, which is
// counted. Rows of one thread are in the order of time; those of several are not.
//
// Memory: (threads + kMostWaiting + 1) × buffer_bytes, whatever the number of chunks.
// Thread safety: a Lane belongs to one thread; the rest to the thread that opened the log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/types.h"

namespace tare::load {

class ChunkLog {
 public:
  static constexpr std::size_t kMostWaiting = 8;

  static Result<std::unique_ptr<ChunkLog>> Open(const std::filesystem::path& file,
                                                std::size_t buffer_bytes = 1 << 20);
  ~ChunkLog();
  ChunkLog(const ChunkLog&) = delete;
  ChunkLog& operator=(const ChunkLog&) = delete;

  class Lane {
   public:
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    void Add(std::uint64_t index, std::uint32_t turn, Nanos after_start, int tokens);

   private:
    friend class ChunkLog;
    explicit Lane(ChunkLog* log);
    ChunkLog* log_;
    std::string buffer_;
    std::uint64_t rows_ = 0;
  };
  // Lives as long as the log.
  Lane* NewLane();

  // Writes what is buffered and closes the file. No lane may be used after it. What could not be
  // written (a full disk) is told here.
  Status Close();

  std::uint64_t rows() const;   // after Close
  std::uint64_t bytes() const;  // of the file, after Close
  std::uint64_t waits() const;  // times a client thread waited for the disk

 private:
  struct Impl;
  explicit ChunkLog(std::unique_ptr<Impl> impl);
  void Hand(std::string buffer);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tare::load
