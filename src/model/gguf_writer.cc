#include "model/gguf_writer.h"

#include <cstring>

namespace tare::model {
namespace {

constexpr std::size_t kAlignment = 32;

template <typename T>
void Put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void PutString(std::string& out, std::string_view text) {
  Put<std::uint64_t>(out, text.size());
  out += text;
}

void Align(std::string& out) {
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
}

// Value type ids of the specification.
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9;

template <typename T>
void PutArray(std::string& out, std::uint32_t element_type, std::span<const T> values) {
  Put(out, element_type);
  Put<std::uint64_t>(out, values.size());
  for (const T& value : values) Put(out, value);
}

}  // namespace

void GgufWriter::Key(std::string_view key, std::uint32_t type) {
  PutString(values_, key);
  Put(values_, type);
  ++value_count_;
}

void GgufWriter::Add(std::string_view key, std::string_view value) {
  Key(key, kString);
  PutString(values_, value);
}
void GgufWriter::Add(std::string_view key, std::uint32_t value) {
  Key(key, kU32);
  Put(values_, value);
}
void GgufWriter::Add(std::string_view key, float value) {
  Key(key, kF32);
  Put(values_, value);
}
void GgufWriter::Add(std::string_view key, bool value) {
  Key(key, kBool);
  Put<std::uint8_t>(values_, value ? 1 : 0);
}
void GgufWriter::Add(std::string_view key, std::span<const std::string> values) {
  Key(key, kArray);
  Put(values_, kString);
  Put<std::uint64_t>(values_, values.size());
  for (const std::string& value : values) PutString(values_, value);
}
void GgufWriter::Add(std::string_view key, std::span<const std::int32_t> values) {
  Key(key, kArray);
  PutArray(values_, kI32, values);
}
void GgufWriter::Add(std::string_view key, std::span<const float> values) {
  Key(key, kArray);
  PutArray(values_, kF32, values);
}

void GgufWriter::AddTensor(std::string_view name, std::uint32_t type_id,
                           std::span<const std::int64_t> dims, std::span<const std::byte> data) {
  tensors_.push_back({std::string(name),
                      type_id,
                      {dims.begin(), dims.end()},
                      {reinterpret_cast<const char*>(data.data()), data.size()}});
}

std::string GgufWriter::Finish() const {
  std::string out = "GGUF";
  Put<std::uint32_t>(out, 3);
  Put<std::uint64_t>(out, tensors_.size());
  Put<std::uint64_t>(out, value_count_);
  out += values_;
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(out, tensor.name);
    Put(out, static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::int64_t dim : tensor.dims) Put(out, dim);
    Put(out, tensor.type_id);
    Put(out, offset);
    offset += (tensor.data.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const Tensor& tensor : tensors_) {
    Align(out);
    out += tensor.data;
  }
  return out;
}

}  // namespace tare::model
