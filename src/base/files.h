// Files on disk: whole-file reads, atomic writes, and where a user's data and cache live.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tare {

// The whole file. `limit` guards against a path that is not what the user thinks it is.
Result<std::string> ReadFile(const std::filesystem::path& path,
                             std::size_t limit = std::size_t{1} << 30);

// Writes beside the target and renames over it: readers see the old file or the new, never half.
// The temporary file is removed when anything fails.
Status WriteFileAtomic(const std::filesystem::path& path, std::string_view content);

// $XDG_DATA_HOME/tare or ~/.local/share/tare; created when missing. TARE_DATA_DIR overrides.
Result<std::filesystem::path> UserDataDir();
// $XDG_CACHE_HOME/tare or ~/.cache/tare; created when missing. TARE_CACHE_DIR overrides.
Result<std::filesystem::path> UserCacheDir();

// A file mapped read-only; pages are loaded on demand and shared between processes.
// Ownership: the mapping lives as long as this object; bytes() dangles after it. Move-only.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tare
