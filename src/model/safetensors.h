// Reader of safetensors files: a JSON header with the place of every tensor, over mmap.
//
// Every length, shape and offset is checked against the bytes that are there before it is used, so
// a truncated, damaged or hostile file gives an Error naming the file, the tensor and the reason.
// Ownership: tensor bytes are views into the mapping. Thread safety: immutable after Open.
// Source: the safetensors format description (huggingface/safetensors README).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "kernels/tensor_view.h"

namespace tare::model {

struct SafetensorsTensor {
  std::string type;                           // "BF16"
  std::optional<kernels::StoredType> stored;  // empty: we cannot read its values
  std::vector<std::int64_t> shape;            // slowest first
  std::span<const std::byte> data;
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);
  // Over bytes the caller keeps alive; `name` stands for the file in messages.
  static Result<SafetensorsFile> Parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }
  // Keeps the bytes of tensors alive; null after Parse.
  std::shared_ptr<const MappedFile> mapping() const { return mapping_; }

 private:
  SafetensorsFile() = default;

  std::shared_ptr<const MappedFile> mapping_;
  std::string name_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
};

}  // namespace tare::model
