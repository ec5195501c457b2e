#include "model/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace tare::model {
namespace {

class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tare-memory-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    Write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    800 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const char* path, std::string_view text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    ASSERT_TRUE(WriteFileAtomic(dir_ / path, text));
  }
  std::uint64_t Available() { return AvailableMemory(dir_ / "proc", dir_ / "sys").value(); }

  std::filesystem::path dir_;
};

TEST_F(AvailableMemoryTest, TakesTheMachinesFigure) { EXPECT_EQ(Available(), 800u * 1024); }

TEST_F(AvailableMemoryTest, HonoursControlGroupLimit) {
  Write("sys/fs/cgroup/memory.max", "500000\n");
  Write("sys/fs/cgroup/memory.current", "300000\n");
  EXPECT_EQ(Available(), 200000u);
  Write("sys/fs/cgroup/memory.stat", "anon 100000\ninactive_file 50000\n");
  EXPECT_EQ(Available(), 250000u);
  Write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(Available(), 800u * 1024);
}

TEST_F(AvailableMemoryTest, HonoursOldControlGroups) {
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(AvailableMemoryTest, NamesWhatCannotBeRead) {
  EXPECT_THAT(AvailableMemory(dir_ / "none", dir_).error().message,
              testing::HasSubstr("MemAvailable"));
}

// An input longer than the usual step has a step of its own.
TEST(WorkingBytesTest, EncodersHaveRoomForTheirLongestInput) {
  ModelConfig config;
  config.hidden = 64;
  config.heads = config.kv_heads = 4;
  config.head_dim = 16;
  config.intermediate = 128;
  config.encoder.emplace();
  const auto of_rows = [&](int context) {
    config.context_length = context;
    return WorkingBytes(config);
  };
  EXPECT_EQ(of_rows(64), of_rows(512));
  const std::uint64_t row = (of_rows(1024) - of_rows(512)) / 512;
  EXPECT_GE(row, sizeof(float) * (64 * 8 + 4 * 128));
  EXPECT_EQ(of_rows(8192) - of_rows(1024), 7168 * row);
}

TEST(CheckFitsTest, ShowsTheArithmetic) {
  MemoryNeed need{.weights = 3ull << 30, .kv = 1ull << 30, .working = 1ull << 29};
  EXPECT_TRUE(CheckFits(need, need.total(), "m.gguf"));
  const auto refused = CheckFits(need, 2ull << 30, "m.gguf");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(refused.error().message,
            "m.gguf does not fit: weights 3.00 GiB + KV 1.00 GiB + working memory 512 MiB = "
            "4.50 GiB > 2.00 GiB available; use a narrower --dtype, a smaller --kv-memory, "
            "--max-model-len or --max-num-seqs, or a machine with more memory");
  need.adapters = 1ull << 28;
  EXPECT_EQ(CheckFits(need, 2ull << 30, "m.gguf").error().message,
            "m.gguf does not fit: weights 3.00 GiB + KV 1.00 GiB + working memory 512 MiB + "
            "adapters 256 MiB = 4.75 GiB > 2.00 GiB available; use a narrower --dtype, a smaller "
            "--kv-memory, --max-model-len or --max-num-seqs, fewer adapters, or a machine with "
            "more memory");
}

}  // namespace
}  // namespace tare::model
