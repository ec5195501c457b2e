#include "load/chunk_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <fstream>
#include <map>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "load/pacing_server.h"
#include "load/random.h"
#include "load/runner.h"

namespace tare::load {
namespace {

// All frames of a zstd file, one after another.
std::string Unpack(const std::filesystem::path& file) {
  const std::string packed = ReadFile(file).value();
  std::string text;
  std::string_view left = packed;
  while (!left.empty()) {
    const std::size_t frame = ZSTD_findFrameCompressedSize(left.data(), left.size());
    const unsigned long long size = ZSTD_getFrameContentSize(left.data(), left.size());
    EXPECT_FALSE(ZSTD_isError(frame)) << "a damaged frame";
    if (ZSTD_isError(frame) != 0) break;
    std::string piece(static_cast<std::size_t>(size), '\0');
    EXPECT_EQ(ZSTD_decompress(piece.data(), piece.size(), left.data(), frame), piece.size());
    text += piece;
    left.remove_prefix(frame);
  }
  return text;
}

struct TempFile {
  std::filesystem::path path =
      ::testing::TempDir() + "tare-chunks-" + std::to_string(::getpid()) + "/c.csv.zst";
  ~TempFile() { std::filesystem::remove_all(path.parent_path()); }
};

// Whatever the size of the buffers and however many threads: every row is there, each thread's in
// order.
RC_GTEST_PROP(ChunkLog, KeepsEveryRow, ()) {
  const TempFile file;
  const auto buffer = *rc::gen::inRange<std::size_t>(1, 4000);
  const auto threads = *rc::gen::inRange(1, 4);
  const auto rows = *rc::gen::inRange<std::uint64_t>(0, 300);
  auto log = ChunkLog::Open(file.path, buffer).value();
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    ChunkLog::Lane* lane = log->NewLane();
    running.emplace_back([=] {
      for (std::uint64_t i = 0; i < rows; ++i) {
        lane->Add(i, static_cast<std::uint32_t>(t),
                  Nanos(static_cast<std::int64_t>(i) * 1'500'000'001), 3);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  RC_ASSERT(log->Close().has_value());
  RC_ASSERT(log->rows() == rows * static_cast<std::uint64_t>(threads));
  const std::string text = Unpack(file.path);
  std::map<std::string, std::uint64_t> next;
  bool head = true;
  for (const std::string_view line : Split(Trim(text), '\n')) {
    if (head) {
      RC_ASSERT(line == "index,turn,t_s,tokens");
      head = false;
      continue;
    }
    const auto cells = Split(line, ',');
    RC_ASSERT(cells.size() == 4u);
    const std::uint64_t i = next[std::string(cells[1])]++;
    RC_ASSERT(cells[0] == std::to_string(i));
    const std::uint64_t nanos = i * 1'500'000'001;
    RC_ASSERT(cells[2] == fmt::format("{}.{:09}", nanos / 1'000'000'000, nanos % 1'000'000'000));
    RC_ASSERT(cells[3] == "3");
  }
  for (const auto& [turn, count] : next) RC_ASSERT(count == rows);
}

TEST(ChunkLog, SaysWhatCouldNotBeWritten) {
  EXPECT_THAT(ChunkLog::Open("/proc/none/c.zst").error().message,
              ::testing::HasSubstr("/proc/none/c.zst"));
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto log = ChunkLog::Open("/dev/full", 300).value();
  ChunkLog::Lane* lane = log->NewLane();
  for (std::uint64_t i = 0; i < 1000; ++i) lane->Add(i, 0, Nanos(1), 1);
  EXPECT_THAT(log->Close().error().message, ::testing::HasSubstr("not complete"));
}

std::size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Two million chunks through buffers of 64 KiB: what the process takes does not follow their
// number.
TEST(ChunkLog, MemoryIsBounded) {
  const TempFile file;
  auto log = ChunkLog::Open(file.path, 64 << 10).value();
  ChunkLog::Lane* lane = log->NewLane();
  const std::size_t before = ResidentBytes();
  std::size_t most = before;
  constexpr std::uint64_t kChunks = 2'000'000;  // 50 MB of text
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    lane->Add(i / 100, 0, Nanos(static_cast<std::int64_t>(i) * 1000), 1);
    if (i % 100'000 == 0) most = std::max(most, ResidentBytes());
  }
  ASSERT_TRUE(log->Close().has_value());
  most = std::max(most, ResidentBytes());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  EXPECT_LT(most - before, std::size_t{16} << 20);
#endif
  EXPECT_EQ(log->rows(), kChunks);
  EXPECT_LT(log->bytes(), kChunks * 13) << "compressed to less than half of the text";
}

TEST(ChunkLog, ARunWritesItsChunks) {
  const auto server = PacingServer::Start({}).value();
  const TempFile file;
  LoadOptions options;
  options.url = server->url();
  options.arrival.users = 3;
  options.requests = 30;
  options.workload.input_tokens = 8;
  options.workload.output_tokens = 5;
  options.workload.seed = 2;
  options.out_dir = file.path.parent_path();
  options.keep_chunks = true;
  const store::RunRecord record = RunLoad(options, nullptr).value();
  EXPECT_EQ(record.workload["chunks"]["rows"], 150);
  std::map<std::string, int> chunks;
  const std::string text = Unpack(options.out_dir / "chunks.csv.zst");
  for (const std::string_view line : Split(Trim(text), '\n')) {
    ++chunks[std::string(Split(line, ',')[0])];
  }
  EXPECT_EQ(chunks.erase("index"), 1u);
  EXPECT_EQ(chunks.size(), 30u);
  for (const auto& [index, count] : chunks) EXPECT_EQ(count, 5) << index;
  options.out_dir.clear();
  EXPECT_THAT(RunLoad(options, nullptr).error().message, ::testing::HasSubstr("--out"));
}

}  // namespace
}  // namespace tare::load
