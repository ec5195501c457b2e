// Writes a safetensors file tensor by tensor: the directory first, then the values in its order.
// Thread safety: none.
// Source: the safetensors format description (huggingface/safetensors README).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/part_file.h"

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

  // The values of the next entry; `values` must have its size.
  Status Add(std::span<const std::byte> values);
  // All entries must have been added.
  Status Commit();

 private:
  SafetensorsWriter(PartFile file, std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  PartFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::size_t next_ = 0;
};

}  // namespace tare::model
