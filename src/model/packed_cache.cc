#include "model/packed_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "base/text.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace tare::model {
namespace {

namespace fs = std::filesystem;
using kernels::PackedForm;
using kernels::WeightType;
using nlohmann::json;

constexpr std::string_view kMagic = "TAREPACK";
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint64_t kAlignment = 4096;
constexpr std::uint64_t kLargestDirectory = std::uint64_t{64} << 20;
constexpr std::string_view kExtension = ".tarepack";
constexpr std::string_view kTemporary = ".writing";
// A temporary file this old belongs to no running program.
constexpr std::chrono::hours kAbandoned{1};

struct Header {
  std::array<char, 8> magic;
  std::uint32_t format_version;
  std::uint32_t layout_version;
  std::uint64_t directory_offset;
  std::uint64_t directory_bytes;
  Sha256Digest directory_hash;
};
static_assert(sizeof(Header) == 64);

std::string Errno() { return std::strerror(errno); }

Status DescribeFile(const fs::path& path, std::string& key) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return Fail(ErrorKind::kIo, "cannot look at '{}': {}", path.string(), Errno());
  }
  key += fmt::format("{} {} {}.{:09}\n", path.string(), info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
  return {};
}

std::optional<WeightType> TypeNamed(std::string_view name) {
  for (const WeightType type :
       {WeightType::kF32, WeightType::kBf16, WeightType::kInt8, WeightType::kInt4}) {
    if (name == kernels::ToString(type)) return type;
  }
  return std::nullopt;
}

// Throws json::exception for what is not there or of another kind.
PackedForm ReadForm(const json& entry) {
  PackedForm form;
  const auto type = TypeNamed(entry.at("type").get<std::string>());
  if (!type) throw json::other_error::create(599, "unknown type", &entry);
  form.type = *type;
  form.with_minimum = entry.at("with_minimum").get<bool>();
  form.rows = entry.at("rows").get<std::int64_t>();
  form.cols = entry.at("cols").get<std::int64_t>();
  return form;
}

struct CacheFile {
  fs::path path;
  fs::file_time_type used;
  std::uint64_t bytes = 0;
};

// Caches in a folder, used longest ago first; abandoned temporary files are removed on the way.
std::vector<CacheFile> CachesIn(const fs::path& folder) {
  std::vector<CacheFile> caches;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    CacheFile file{entry.path(), entry.last_write_time(code), entry.file_size(code)};
    if (code) continue;
    if (file.path.extension() == kExtension) {
      caches.push_back(std::move(file));
    } else if (file.path.extension() == kTemporary &&
               fs::file_time_type::clock::now() - file.used > kAbandoned) {
      fs::remove(file.path, code);
    }
  }
  std::ranges::sort(caches, {}, &CacheFile::used);
  return caches;
}

Status WriteAll(int fd, const void* data, std::size_t size, std::uint64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(fd, from, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Fail(ErrorKind::kIo, "{}", Errno());
    from += written;
    size -= static_cast<std::size_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

}  // namespace

Result<std::string> PackedCacheKey(const fs::path& checkpoint, std::string_view dtype) {
  std::error_code code;
  const fs::path path = fs::canonical(checkpoint, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot look at '{}': {}", checkpoint.string(), code.message());
  }
  std::string key = fmt::format("dtype {}\n", dtype);
  if (!fs::is_directory(path, code)) {
    TARE_RETURN_IF_ERROR(DescribeFile(path, key));
    return key;
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, code)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".json" || extension == ".safetensors") files.push_back(entry.path());
  }
  if (code) return Fail(ErrorKind::kIo, "cannot list '{}': {}", path.string(), code.message());
  std::ranges::sort(files);
  for (const fs::path& file : files) TARE_RETURN_IF_ERROR(DescribeFile(file, key));
  return key;
}

fs::path PackedCachePath(const fs::path& directory, std::string_view key) {
  return directory / (ToHex(Sha256(key)).substr(0, 32) + std::string(kExtension));
}

Result<PackedCacheReader> PackedCacheReader::Open(const fs::path& path, std::string_view key) {
  TARE_TRY(MappedFile mapping, MappedFile::Open(path));
  const auto damaged = [&](std::string_view what) {
    return Fail(ErrorKind::kCorrupt, "packed weights '{}': {}", path.string(), what);
  };
  const std::span<const std::byte> bytes = mapping.bytes();
  Header header;
  if (bytes.size() < sizeof header) return damaged("too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic) {
    return damaged("not such a file");
  }
  if (header.format_version != kFormatVersion ||
      header.layout_version != kernels::kPackedLayoutVersion) {
    return damaged("made by another version");
  }
  if (header.directory_bytes > kLargestDirectory || header.directory_offset > bytes.size() ||
      header.directory_bytes > bytes.size() - header.directory_offset) {
    return damaged("its directory lies outside of it");
  }
  const std::string_view directory(
      reinterpret_cast<const char*>(bytes.data()) + header.directory_offset,
      header.directory_bytes);
  if (Sha256(directory) != header.directory_hash) return damaged("its directory is damaged");

  PackedCacheReader reader;
  try {
    const json root = json::parse(directory);
    if (root.at("key_sha256").get<std::string>() != ToHex(Sha256(key)))
      return damaged("made from other files");
    for (const json& entry : root.at("matrices")) {
      const auto offset = entry.at("offset").get<std::uint64_t>();
      const auto size = entry.at("bytes").get<std::uint64_t>();
      if (offset % kAlignment != 0 || offset > bytes.size() || size > bytes.size() - offset) {
        return damaged("a matrix lies outside of it");
      }
      reader.entries_[entry.at("name").get<std::string>()] = {ReadForm(entry),
                                                              bytes.subspan(offset, size)};
    }
  } catch (const json::exception&) {
    return damaged("its directory cannot be read");
  }
  // All of it is about to be used; one call maps faster than a fault for every page. Where the
  // kernel knows no such call, reading ahead is the next best. Neither can do harm by failing.
  void* begin = const_cast<std::byte*>(bytes.data());
  if (::madvise(begin, bytes.size(), MADV_POPULATE_READ) != 0) {
    (void)::madvise(begin, bytes.size(), MADV_WILLNEED);
  }
  std::error_code code;
  fs::last_write_time(path, fs::file_time_type::clock::now(), code);  // the oldest go first
  reader.mapping_ = std::make_shared<const MappedFile>(std::move(mapping));
  return reader;
}

std::optional<kernels::PackedMatrix> PackedCacheReader::Find(std::string_view name,
                                                             const PackedForm& form) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end() || entry->second.form != form) return std::nullopt;
  auto view = kernels::PackedMatrix::View(form, entry->second.data, mapping_);
  if (!view) return std::nullopt;
  return *std::move(view);
}

Result<PackedCacheWriter> PackedCacheWriter::Create(const fs::path& path, std::string_view key,
                                                    std::uint64_t expected_bytes,
                                                    const PackedCacheLimits& limits) {
  const fs::path folder = path.parent_path();
  std::error_code code;
  fs::create_directories(folder, code);
  const fs::space_info space = fs::space(folder, code);
  if (code) return Fail(ErrorKind::kIo, "cannot use '{}': {}", folder.string(), code.message());
  if (expected_bytes > limits.total_bytes) {
    return Fail(ErrorKind::kResourceExhausted, "{} are more than the {} kept of packed weights",
                FormatBytes(expected_bytes), FormatBytes(limits.total_bytes));
  }
  if (space.available < limits.free_bytes || space.available - limits.free_bytes < expected_bytes) {
    return Fail(ErrorKind::kResourceExhausted,
                "'{}' has {} left, too little for {} with {} to spare", folder.string(),
                FormatBytes(space.available), FormatBytes(expected_bytes),
                FormatBytes(limits.free_bytes));
  }
  PackedCacheWriter writer;
  writer.path_ = path;
  static std::atomic<int> writers{0};  // two loads in one process must not share a file
  writer.temporary_ =
      folder / fmt::format("{}-{}-{}{}", path.stem().string(), ::getpid(), ++writers, kTemporary);
  writer.key_ = key;
  writer.limits_ = limits;
  writer.fd_ = ::open(writer.temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) {
    return Fail(ErrorKind::kIo, "cannot write '{}': {}", writer.temporary_.string(), Errno());
  }
  writer.end_ = kAlignment;  // the header's page
  return writer;
}

PackedCacheWriter::PackedCacheWriter(PackedCacheWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      key_(std::move(other.key_)),
      limits_(other.limits_),
      fd_(std::exchange(other.fd_, -1)),
      end_(other.end_),
      directory_(std::move(other.directory_)) {}

PackedCacheWriter::~PackedCacheWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status PackedCacheWriter::Add(std::string_view name, const kernels::PackedMatrix& matrix) {
  const std::span<const std::byte> data = matrix.data();
  if (Status written = WriteAll(fd_, data.data(), data.size(), end_); !written) {
    return Context(std::move(written).error(), "cannot write '{}'", temporary_.string());
  }
  const PackedForm form = matrix.form();
  const json entry = {{"name", name},
                      {"type", kernels::ToString(form.type)},
                      {"with_minimum", form.with_minimum},
                      {"rows", form.rows},
                      {"cols", form.cols},
                      {"offset", end_},
                      {"bytes", data.size()}};
  directory_ += (directory_.empty() ? "" : ",\n") + entry.dump();
  end_ = (end_ + data.size() + kAlignment - 1) / kAlignment * kAlignment;
  return {};
}

Status PackedCacheWriter::Commit() {
  const std::string directory = fmt::format(
      "{{\"key_sha256\":\"{}\",\"made_from\":{},\"matrices\":[\n{}\n]}}\n", ToHex(Sha256(key_)),
      json(key_).dump(-1, ' ', false, json::error_handler_t::replace), directory_);
  Header header{};
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  header.format_version = kFormatVersion;
  header.layout_version = kernels::kPackedLayoutVersion;
  header.directory_offset = end_;
  header.directory_bytes = directory.size();
  header.directory_hash = Sha256(directory);
  const auto write = [&]() -> Status {
    TARE_RETURN_IF_ERROR(WriteAll(fd_, directory.data(), directory.size(), end_));
    if (::fdatasync(fd_) != 0) return Fail(ErrorKind::kIo, "{}", Errno());
    TARE_RETURN_IF_ERROR(WriteAll(fd_, &header, sizeof header, 0));
    if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return Fail(ErrorKind::kIo, "{}", Errno());
    }
    return {};
  };
  if (Status written = write(); !written) {
    return Context(std::move(written).error(), "cannot write '{}'", path_.string());
  }
  temporary_.clear();
  const std::vector<CacheFile> caches = CachesIn(path_.parent_path());
  std::uint64_t total = 0;
  for (const CacheFile& cache : caches) total += cache.bytes;
  for (const CacheFile& cache : caches) {
    if (total <= limits_.total_bytes) break;
    if (cache.path == path_) continue;
    std::error_code code;
    if (fs::remove(cache.path, code)) total -= cache.bytes;
  }
  return {};
}

}  // namespace tare::model
