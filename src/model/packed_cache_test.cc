#include "model/packed_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "model/load.h"
#include "model/tiny_checkpoint.h"

namespace tare::model {
namespace {

namespace fs = std::filesystem;
using kernels::PackedMatrix;
using kernels::WeightType;
using testing::HasSubstr;

// Nothing is kept free, so that a nearly full disk does not fail the tests.
constexpr PackedCacheLimits kNoSpare = {.total_bytes = std::uint64_t{1} << 30, .free_bytes = 0};

class PackedCacheTest : public testing::Test {
 protected:
  PackedCacheTest() : folder_(fs::path(testing::TempDir()) / MakeName()) {
    fs::create_directories(folder_);
  }
  ~PackedCacheTest() override { fs::remove_all(folder_); }

  static std::string MakeName() {
    return "packed_cache_test." + std::to_string(::getpid()) + "." +
           testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  PackedMatrix Pack(WeightType type, std::int64_t rows, std::int64_t cols) {
    values_.resize(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(i % 37) - 18.0f;
    }
    return PackedMatrix::Pack(type, View(rows, cols), pool_).value();
  }
  kernels::TensorView View(std::int64_t rows, std::int64_t cols) const {
    return {kernels::StoredType::kF32, rows, cols, std::as_bytes(std::span(values_))};
  }

  // A cache of two matrices under "key".
  fs::path Write() {
    const fs::path path = PackedCachePath(folder_, "key");
    auto writer = PackedCacheWriter::Create(path, "key", 1000, kNoSpare).value();
    EXPECT_TRUE(writer.Add("first", Pack(WeightType::kInt4, 20, 96)));
    EXPECT_TRUE(writer.Add("second", Pack(WeightType::kBf16, 5, 33)));
    EXPECT_TRUE(writer.Commit());
    return path;
  }

  std::string OpenError(const fs::path& path, std::string_view key = "key") {
    const auto reader = PackedCacheReader::Open(path, key);
    return reader ? "opened" : reader.error().message;
  }

  std::size_t Files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::vector<float> values_;
  ThreadPool pool_{2};
};

TEST_F(PackedCacheTest, GivesBackWhatWasKept) {
  const auto reader = PackedCacheReader::Open(Write(), "key").value();
  EXPECT_EQ(reader.matrices(), 2u);
  const PackedMatrix second = Pack(WeightType::kBf16, 5, 33);
  const auto found = reader.Find("second", second.form());
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::ranges::equal(found->data(), second.data()));
  EXPECT_FALSE(reader.Find("third", second.form()));
  kernels::PackedForm other = second.form();
  other.type = WeightType::kF32;  // the same name in another form is not what is asked for
  EXPECT_FALSE(reader.Find("second", other));
}

TEST_F(PackedCacheTest, SaysWhyThereIsNothingToUse) {
  EXPECT_EQ(PackedCacheReader::Open(folder_ / "none", "key").error().kind, ErrorKind::kNotFound);
  const fs::path path = Write();
  EXPECT_THAT(OpenError(path, "another key"), HasSubstr("made from other files"));
  const auto patch = [&](std::streamoff at, char byte) {
    Write();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(byte);
  };
  patch(0, 'X');
  EXPECT_THAT(OpenError(path), HasSubstr("not such a file"));
  patch(8, 99);
  EXPECT_THAT(OpenError(path), HasSubstr("another version"));
  patch(12, 99);
  EXPECT_THAT(OpenError(path), HasSubstr("another version"));
  patch(23, 99);  // the directory's place
  EXPECT_THAT(OpenError(path), HasSubstr("outside"));
}

// Cut or changed anywhere, the file opens as it was or is refused; what it gives is safe to use.
TEST_F(PackedCacheTest, DamageIsRefusedOrHarmless) {
  const fs::path path = Write();
  const std::string whole = ReadFile(path).value();
  const kernels::PackedForm form = PackedMatrix::FormOf(WeightType::kInt4, View(20, 96));
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      // The header and the directory are where damage could mislead.
      const std::size_t tail = bytes.size() - 600;
      const std::size_t at = i % 2 == 0 ? random() % 64 : tail + random() % 600;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto reader = PackedCacheReader::Open(path, "key");
    refused += !reader;
    if (!reader) continue;
    const auto found = reader->Find("first", form);
    if (!found) continue;
    std::vector<float> x(96, 1.0f), y(20);
    kernels::Activations input;
    input.Set(x.data(), 1, 96);
    kernels::MatMul(*found, input, y.data(), 0, pool_);
  }
  EXPECT_GT(refused, 300);
}

TEST_F(PackedCacheTest, AnUnfinishedWriteLeavesNothing) {
  const fs::path path = PackedCachePath(folder_, "key");
  {
    auto writer = PackedCacheWriter::Create(path, "key", 1000, kNoSpare).value();
    ASSERT_TRUE(writer.Add("first", Pack(WeightType::kInt8, 20, 96)));
    EXPECT_EQ(Files(), 1u);
  }
  EXPECT_EQ(Files(), 0u);
}

TEST_F(PackedCacheTest, RemovesWhatACrashLeftAndTheCachesUsedLongestAgo) {
  const fs::path old_cache = folder_ / "old.tarepack";
  const fs::path newer_cache = folder_ / "newer.tarepack";
  const fs::path crashed = folder_ / "x-1.writing";
  const fs::path foreign = folder_ / "notes.txt";
  for (const fs::path& path : {old_cache, newer_cache, crashed, foreign}) {
    std::ofstream(path) << std::string(10000, 'x');
  }
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(old_cache, now - std::chrono::hours(48));
  fs::last_write_time(newer_cache, now - std::chrono::hours(24));
  fs::last_write_time(crashed, now - std::chrono::hours(2));
  const fs::path path = PackedCachePath(folder_, "key");
  auto writer =
      PackedCacheWriter::Create(path, "key", 1000, {.total_bytes = 25000, .free_bytes = 0}).value();
  ASSERT_TRUE(writer.Add("first", Pack(WeightType::kInt4, 20, 96)));
  ASSERT_TRUE(writer.Commit());
  EXPECT_TRUE(fs::exists(path));
  EXPECT_FALSE(fs::exists(old_cache));
  EXPECT_TRUE(fs::exists(newer_cache));
  EXPECT_FALSE(fs::exists(crashed));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(PackedCacheTest, RefusesWhatDoesNotFit) {
  const fs::path path = folder_ / "a.tarepack";
  const auto error = [&](std::uint64_t bytes, PackedCacheLimits limits) {
    const auto writer = PackedCacheWriter::Create(path, "key", bytes, limits);
    return writer ? "created" : writer.error().message;
  };
  EXPECT_THAT(error(1001, {.total_bytes = 1000, .free_bytes = 0}), HasSubstr("kept of packed"));
  EXPECT_THAT(error(1000, {.total_bytes = 1 << 20, .free_bytes = std::uint64_t{1} << 60}),
              HasSubstr("to spare"));
  std::ofstream(folder_ / "file") << "x";
  const auto writer =
      PackedCacheWriter::Create(folder_ / "file" / "a.tarepack", "key", 1, kNoSpare);
  EXPECT_FALSE(writer);
}

TEST_F(PackedCacheTest, AChangedCheckpointHasAnotherKey) {
  const fs::path file = folder_ / "model.gguf";
  std::ofstream(file) << "one";
  const std::string first = PackedCacheKey(file, "auto").value();
  EXPECT_EQ(PackedCacheKey(file, "auto").value(), first);
  EXPECT_NE(PackedCacheKey(file, "int8").value(), first);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_NE(PackedCacheKey(file, "auto").value(), first);
  std::ofstream(file) << "longer";
  EXPECT_NE(PackedCacheKey(file, "auto").value(), first);

  const fs::path model = folder_ / "model";
  fs::create_directories(model);
  std::ofstream(model / "config.json") << "{}";
  std::ofstream(model / "model.safetensors") << "x";
  const std::string folder = PackedCacheKey(model, "auto").value();
  std::ofstream(model / "model.safetensors") << "yy";
  EXPECT_NE(PackedCacheKey(model, "auto").value(), folder);
  EXPECT_FALSE(PackedCacheKey(folder_ / "none", "auto"));
}

TEST_F(PackedCacheTest, AModelFromTheCacheComputesTheSame) {
  const auto models = ReadTinyModels();
  ASSERT_FALSE(models.empty());
  for (const TinyModel& tiny : models) {
    const std::string bytes = TinyGguf(tiny);
    const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value();
    for (const WeightType dtype : {WeightType::kInt4, WeightType::kInt8, WeightType::kBf16}) {
      const fs::path path = PackedCachePath(folder_, tiny.name + kernels::ToString(dtype));
      LoadOptions options;
      options.dtype = dtype;
      options.pool = &pool_;
      auto writer = PackedCacheWriter::Create(path, "key", 1000, kNoSpare).value();
      options.keep = &writer;
      const auto packed = LoadModel(file, options);
      if (!packed) continue;  // a family that can only be inspected
      ASSERT_TRUE(writer.Commit());
      const auto reader = PackedCacheReader::Open(path, "key").value();
      options.keep = nullptr;
      options.packed = &reader;
      const auto mapped = LoadModel(file, options).value();
      EXPECT_EQ(mapped->weight_bytes(), (*packed)->weight_bytes());
      EXPECT_EQ(mapped->weight_type(), (*packed)->weight_type());
      const std::vector<TokenId>& tokens = tiny.cases.front().tokens;
      EXPECT_EQ(RunTokens(*mapped, tokens, 7), RunTokens(**packed, tokens, 7)) << tiny.name;
    }
  }
}

}  // namespace
}  // namespace tare::model
