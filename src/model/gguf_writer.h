// Writes GGUF version 3 files, in memory: metadata in the order added, then tensors, each aligned.
//
// Thread safety: none; one thread builds and takes the bytes.
// Source: the GGUF specification (ggml docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tare::model {

class GgufWriter {
 public:
  void Add(std::string_view key, std::string_view value);
  void Add(std::string_view key, const char* value) { Add(key, std::string_view(value)); }
  void Add(std::string_view key, std::uint32_t value);
  void Add(std::string_view key, float value);
  void Add(std::string_view key, bool value);
  void Add(std::string_view key, std::span<const std::string> values);
  void Add(std::string_view key, std::span<const std::int32_t> values);
  void Add(std::string_view key, std::span<const float> values);

  // `dims` fastest first; `data` is copied and must have the size that type and dims ask for.
  void AddTensor(std::string_view name, std::uint32_t type_id, std::span<const std::int64_t> dims,
                 std::span<const std::byte> data);

  // The whole file.
  std::string Finish() const;

 private:
  void Key(std::string_view key, std::uint32_t type);

  struct Tensor {
    std::string name;
    std::uint32_t type_id;
    std::vector<std::int64_t> dims;
    std::string data;
  };
  std::string values_;
  std::uint64_t value_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace tare::model
