// Reader of GGUF files (versions 2 and 3): typed metadata and the tensor directory, over mmap.
//
// Everything a file claims (counts, lengths, offsets, sizes, alignment, products of dimensions) is
// checked against the bytes that are there before it is used, so a truncated, damaged or hostile
// file gives an Error that names the file, the key or tensor and the reason; memory taken while
// parsing is bounded by the file's size.
//
// Ownership: strings, tensor names and tensor bytes are views into the mapping and live as long as
// the GgufFile (they survive a move of it) or whoever shares its mapping. Thread safety: immutable
// after Open. Source: the GGUF specification (ggml docs/gguf.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "kernels/tensor_view.h"
#include "model/ggml_types.h"

namespace tare::model {

struct GgufTensor {
  std::string_view name;
  const GgmlType* type = nullptr;
  int rank = 0;
  std::array<std::int64_t, 4> dims = {1, 1, 1, 1};  // fastest first: dims[0] is contiguous
  std::span<const std::byte> data;

  std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::string ShapeText() const;  // "[576, 49152]", fastest first, as the file has it
};

class GgufFile {
 public:
  static Result<GgufFile> Open(const std::filesystem::path& path);
  // Over bytes the caller keeps alive; `name` stands for the file in messages.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }
  // Keeps the bytes of tensors and strings alive; null after Parse.
  std::shared_ptr<const MappedFile> mapping() const { return mapping_; }

  // Metadata. A missing key is kNotFound, a value of another type kCorrupt. Integers of any width
  // convert as long as the value fits, floats of both widths too.
  bool Has(std::string_view key) const { return values_.contains(key); }
  Result<std::string_view> String(std::string_view key) const;
  Result<std::int64_t> Int(std::string_view key) const;
  Result<double> Float(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> Ints(std::string_view key) const;
  Result<std::vector<float>> Floats(std::string_view key) const;
  // As above with a value for a missing key; a wrong type stays an error.
  Result<std::string_view> StringOr(std::string_view key, std::string_view missing) const;
  Result<std::int64_t> IntOr(std::string_view key, std::int64_t missing) const;
  Result<double> FloatOr(std::string_view key, double missing) const;
  Result<bool> BoolOr(std::string_view key, bool missing) const;
  // All keys, sorted.
  std::vector<std::string_view> Keys() const;

  // The metadata entries as the file has them, one after the other, and how many there are;
  // general.file_type, which sums up the tensors' types, becomes `file_type` when it is there.
  std::string MetadataFor(std::uint32_t file_type) const;
  std::uint64_t metadata_count() const { return values_.size(); }

  // In the file's order.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // Null when there is none of that name.
  const GgufTensor* Find(std::string_view name) const;
  // As a weight matrix [rows, cols]; the slower dimensions are multiplied into rows. Refuses, by
  // name, a type whose values we cannot read.
  Result<kernels::TensorView> View(const GgufTensor& tensor) const;

 private:
  // A value's place in the file; arrays are decoded when asked for.
  struct Value {
    std::uint32_t type = 0;  // of the value, or of the elements of an array
    bool array = false;
    std::uint64_t count = 1;
    std::span<const std::byte> bytes;
  };
  class Parser;

  GgufFile() = default;
  Result<const Value*> Lookup(std::string_view key, bool array, const char* wanted) const;
  tl::unexpected<Error> WrongType(std::string_view key, const Value& value,
                                  const char* wanted) const;

  std::shared_ptr<const MappedFile> mapping_;
  std::string name_;
  std::uint32_t version_ = 0;
  std::span<const std::byte> metadata_;
  std::map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, std::size_t> index_;
};

}  // namespace tare::model
