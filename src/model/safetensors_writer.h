// Writes a safetensors file tensor by tensor: the directory first, then the values in its order.
//
// The file gets its name when it is complete; an unfinished one is removed. Thread safety: none.
// Source: the safetensors format description (huggingface/safetensors README).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tare::model {

struct SafetensorsEntry {
  std::string name;
  std::string type;                 // "BF16"
  std::vector<std::int64_t> shape;  // slowest first

  std::uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Begins `path` with the directory of `entries` and `metadata`.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path,
                                          std::vector<SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // The values of the next entry; `values` must have its size.
  Status Add(std::span<const std::byte> values);
  // All entries must have been added.
  Status Commit();

 private:
  SafetensorsWriter() = default;
  Status Write(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<SafetensorsEntry> entries_;
  std::size_t next_ = 0;
  int fd_ = -1;
};

}  // namespace tare::model
