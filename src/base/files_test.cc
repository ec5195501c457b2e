#include "base/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace tare {
namespace {

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tare-files-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

TEST_F(FilesTest, WritesAtomicallyAndReadsBack) {
  const auto path = dir_ / "a.txt";
  ASSERT_TRUE(WriteFileAtomic(path, "one"));
  ASSERT_TRUE(WriteFileAtomic(path, std::string("two\0three", 9)));
  EXPECT_EQ(ReadFile(path).value(), std::string("two\0three", 9));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_), {}), 1);
}

TEST_F(FilesTest, FailedWriteLeavesNothing) {
  const auto status = WriteFileAtomic(dir_ / "no" / "such" / "dir", "x");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("no/such/dir"), std::string::npos);
}

TEST_F(FilesTest, NamesMissingFileAndDirectory) {
  EXPECT_EQ(ReadFile(dir_ / "gone").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(ReadFile(dir_).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_FALSE(MappedFile::Open(dir_));
}

TEST_F(FilesTest, RefusesFileOverLimit) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "big", std::string(100, 'x')));
  EXPECT_FALSE(ReadFile(dir_ / "big", 99));
  EXPECT_TRUE(ReadFile(dir_ / "big", 100));
}

TEST_F(FilesTest, MapsFileAndSurvivesMove) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "m", "mapped"));
  auto mapped = MappedFile::Open(dir_ / "m");
  ASSERT_TRUE(mapped);
  MappedFile moved = *std::move(mapped);
  EXPECT_EQ(moved.bytes().size(), 6u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[0]), 'm');
  ASSERT_TRUE(WriteFileAtomic(dir_ / "empty", ""));
  EXPECT_EQ(MappedFile::Open(dir_ / "empty").value().bytes().size(), 0u);
}

}  // namespace
}  // namespace tare
