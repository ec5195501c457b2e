// Packed weights kept on disk, so that the next start of the same model maps them instead of
// converting and packing again.
//
// One file for each model and dtype, named after both:
//
//   header     64 bytes: "TAREPACK", format version, layout version, place and hash of the
//   directory matrices   each at a multiple of 4 KiB, as PackedMatrix::data() has them directory
//   JSON: what the file was made from, and name, form, place and size of every matrix
//
// A file that was made from other bytes, by another version, or that is damaged is not an error: it
// counts as absent and is written anew. The header is written last, after everything else has
// reached the disk, and the file gets its name after that: a crash leaves a temporary file, which
// a later Commit removes, never half a cache. The values of matrices carry no checksum, like those
// of the checkpoint itself.
//
// Thread safety: a reader is immutable; a writer belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "kernels/matmul.h"

namespace tare::model {

// What packed bytes depend on: the checkpoint's files by path, size and time of change, and `dtype`
// as the user gave it. Fails when `checkpoint` (a file or folder) cannot be looked at.
Result<std::string> PackedCacheKey(const std::filesystem::path& checkpoint, std::string_view dtype);

// Where in `directory` the cache with this key is kept.
std::filesystem::path PackedCachePath(const std::filesystem::path& directory, std::string_view key);

class PackedCacheReader {
 public:
  // An error says why there is nothing to use: not there, another version, damaged.
  static Result<PackedCacheReader> Open(const std::filesystem::path& path, std::string_view key);

  // The matrix called `name` if it is there in just this form. It shares the mapping.
  std::optional<kernels::PackedMatrix> Find(std::string_view name,
                                            const kernels::PackedForm& form) const;
  std::size_t matrices() const { return entries_.size(); }

 private:
  struct Entry {
    kernels::PackedForm form;
    std::span<const std::byte> data;
  };
  std::shared_ptr<const MappedFile> mapping_;
  std::map<std::string, Entry, std::less<>> entries_;
};

struct PackedCacheLimits {
  std::uint64_t total_bytes = std::uint64_t{32} << 30;  // of all caches; the oldest go first
  std::uint64_t free_bytes = std::uint64_t{4} << 30;    // the disk keeps at least this much
};

class PackedCacheWriter {
 public:
  // Begins a temporary file beside `path`, whose folder is made when missing. Fails when the disk
  // has no room for `expected_bytes` more within the limits.
  static Result<PackedCacheWriter> Create(const std::filesystem::path& path, std::string_view key,
                                          std::uint64_t expected_bytes,
                                          const PackedCacheLimits& limits = {});
  PackedCacheWriter(PackedCacheWriter&& other) noexcept;
  PackedCacheWriter& operator=(PackedCacheWriter&&) = delete;
  ~PackedCacheWriter();  // without Commit the temporary file goes

  Status Add(std::string_view name, const kernels::PackedMatrix& matrix);
  // Waits for the disk, gives the file its name, and removes the caches used longest ago until the
  // limits hold.
  Status Commit();

 private:
  PackedCacheWriter() = default;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::string key_;
  PackedCacheLimits limits_;
  int fd_ = -1;
  std::uint64_t end_ = 0;
  std::string directory_;  // JSON of the matrices so far, comma-separated
};

}  // namespace tare::model
