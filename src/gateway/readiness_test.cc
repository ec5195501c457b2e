#include "gateway/readiness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReadinessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-ready-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path File() const { return folder_ / "readiness.json"; }
  static ReadinessReport Of(const Readiness& readiness, Channel channel) {
    return readiness.Report().at(static_cast<std::size_t>(channel));
  }
  static std::chrono::system_clock::time_point Then() {
    return std::chrono::system_clock::time_point(seconds(1'700'000'000));
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ReadinessTest, CountsWhatKeptItsTarget) {
  Readiness readiness("", Then);
  readiness.Note(Channel::kReload, true, seconds(8), "a");  // just in time
  readiness.Note(Channel::kReload, true, milliseconds(8001), "b");
  readiness.Note(Channel::kReload, true, seconds(2), "c");
  readiness.Note(Channel::kReload, false, seconds(1), "d");
  readiness.Note(Channel::kCanary, true, seconds(180), "m");
  readiness.Note(Channel::kAb, true, seconds(121), "m");
  const ReadinessReport reload = Of(readiness, Channel::kReload);
  EXPECT_EQ(reload.events, 4u);
  EXPECT_EQ(reload.met, 2u);
  EXPECT_EQ(reload.median_s, 8);
  EXPECT_EQ(reload.worst_s, 8.001);
  EXPECT_EQ(reload.last.front().what, "d") << "newest first";
  EXPECT_EQ(reload.last.front().at, 1'700'000'000);
  EXPECT_EQ(Of(readiness, Channel::kCanary).met, 1u);
  EXPECT_EQ(Of(readiness, Channel::kAb).met, 0u);
}

TEST_F(ReadinessTest, OutlivesTheProcessAndForgetsTheOldest) {
  {
    Readiness readiness(File(), Then);
    readiness.Note(Channel::kReload, false, seconds(1), "oldest");
    for (std::size_t i = 0; i < Readiness::kKept; ++i) {
      readiness.Note(Channel::kReload, true, seconds(1), "x");
    }
  }
  const Readiness readiness(File(), Then);
  const ReadinessReport report = Of(readiness, Channel::kReload);
  EXPECT_EQ(report.events, Readiness::kKept);
  EXPECT_EQ(report.met, Readiness::kKept);
  EXPECT_EQ(report.last.size(), Readiness::kShown);
}

TEST_F(ReadinessTest, ABrokenFileIsBegunAnew) {
  for (const char* text : {"", "[1", "[]", R"({"canary":[{"at":"x"}],"ab":[],"reload":[]})"}) {
    std::ofstream(File()) << text;
    Readiness readiness(File(), Then);
    EXPECT_EQ(Of(readiness, Channel::kCanary).events, 0u) << text;
    readiness.Note(Channel::kCanary, true, seconds(1), "m");
    EXPECT_EQ(Of(Readiness(File(), Then), Channel::kCanary).events, 1u) << text;
    std::filesystem::remove(File());
  }
}

}  // namespace
}  // namespace tare::gateway
