// A file being written beside its final place, which it takes when complete. Removed otherwise.
// Thread safety: none.
#pragma once

#include <filesystem>
#include <span>

#include "base/result.h"

namespace tare::model {

class PartFile {
 public:
  static Result<PartFile> Create(const std::filesystem::path& path);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  // Waits for the disk and gives the file its name.
  Status Commit();

 private:
  PartFile() = default;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

}  // namespace tare::model
