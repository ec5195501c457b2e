#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace tare::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, little endian");

// Value types of metadata, as numbered by the specification.
enum : std::uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kTypeCount
};

constexpr const char* kTypeNames[kTypeCount] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
// Bytes of a value; 0 for those of variable length.
constexpr std::uint8_t kTypeBytes[kTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Least bytes an entry can take, to bound the counts of the header before anything is reserved:
// key length, type, one byte of value; name length, rank, one dimension, type, offset.
constexpr std::uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1 << 20;
// No model comes near this; it bounds what a large hostile file can make us allocate.
constexpr std::uint64_t kMaxEntries = 1 << 20;
constexpr std::size_t kMaxNameShown = 80;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A name from the file as it may be shown: short, printable.
std::string Shown(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kMaxNameShown)) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7f ? '?' : c;
  }
  if (name.size() > kMaxNameShown) out += "...";
  return out;
}

// Empty when the type is not an integer or the value does not fit 64 signed bits.
std::optional<std::int64_t> DecodeInt(std::uint32_t type, const std::byte* from) {
  switch (type) {
    case kU8:
      return Load<std::uint8_t>(from);
    case kI8:
      return Load<std::int8_t>(from);
    case kU16:
      return Load<std::uint16_t>(from);
    case kI16:
      return Load<std::int16_t>(from);
    case kU32:
      return Load<std::uint32_t>(from);
    case kI32:
      return Load<std::int32_t>(from);
    case kI64:
      return Load<std::int64_t>(from);
    case kU64: {
      const auto value = Load<std::uint64_t>(from);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
      return static_cast<std::int64_t>(value);
    }
    default:
      return {};
  }
}

std::optional<double> DecodeFloat(std::uint32_t type, const std::byte* from) {
  if (type == kF32) return static_cast<double>(Load<float>(from));
  if (type == kF64) return Load<double>(from);
  return {};
}

template <typename T>
Result<T> OrMissing(Result<T> result, T missing) {
  if (!result && result.error().kind == ErrorKind::kNotFound) return missing;
  return result;
}

}  // namespace

std::string GgufTensor::ShapeText() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return text + "]";
}

// Walks the bytes once, front to back.
class GgufFile::Parser {
 public:
  Parser(std::span<const std::byte> bytes, GgufFile& file) : bytes_(bytes), file_(file) {}

  Status Run() {
    TARE_TRY(const auto counts, Header());
    const std::size_t begin = at_;
    for (std::uint64_t i = 0; i < counts.values; ++i) TARE_RETURN_IF_ERROR(OneValue(i));
    file_.metadata_ = bytes_.subspan(begin, at_ - begin);
    TARE_TRY(alignment_, Alignment());
    file_.tensors_.reserve(counts.tensors);
    offsets_.reserve(counts.tensors);
    for (std::uint64_t i = 0; i < counts.tensors; ++i) TARE_RETURN_IF_ERROR(OneTensor(i));
    return PlaceTensors();
  }

 private:
  struct Counts {
    std::uint64_t tensors = 0;
    std::uint64_t values = 0;
  };

  template <typename... Args>
  tl::unexpected<Error> Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorKind::kCorrupt, "{}: {} (the file is damaged or incomplete; fetch it again)",
                file_.name_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  Result<T> Read(const char* what) {
    if (left() < sizeof(T)) return Corrupt("ends at byte {} within {}", bytes_.size(), what);
    const T value = Load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> ReadString(const char* what) {
    TARE_TRY(const auto length, Read<std::uint64_t>(what));
    if (length > left()) {
      return Corrupt("{} at byte {} claims {} bytes, {} are left", what, at_, length, left());
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  Result<Counts> Header() {
    if (left() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      return Fail(ErrorKind::kCorrupt,
                  "{} is not a GGUF file: it does not start with the letters GGUF", file_.name_);
    }
    at_ = 4;
    TARE_TRY(file_.version_, Read<std::uint32_t>("the header"));
    if ((file_.version_ & 0xffff) == 0 && file_.version_ != 0) {
      return Fail(ErrorKind::kUnsupported,
                  "{} is a big-endian GGUF file; convert it to little endian", file_.name_);
    }
    if (file_.version_ != 2 && file_.version_ != 3) {
      return Fail(ErrorKind::kUnsupported,
                  "{} has GGUF version {}; versions 2 and 3 can be read: convert the model anew",
                  file_.name_, file_.version_);
    }
    Counts counts;
    TARE_TRY(counts.tensors, Read<std::uint64_t>("the header"));
    TARE_TRY(counts.values, Read<std::uint64_t>("the header"));
    if (counts.values > std::min(left() / kMinValueBytes, kMaxEntries)) {
      return Corrupt("the header claims {} metadata entries, {} bytes are left", counts.values,
                     left());
    }
    if (counts.tensors > std::min(left() / kMinTensorBytes, kMaxEntries)) {
      return Corrupt("the header claims {} tensors, {} bytes are left", counts.tensors, left());
    }
    return counts;
  }

  Status OneValue(std::uint64_t ordinal) {
    TARE_TRY(const auto key, ReadString("the name of a metadata entry"));
    if (key.empty()) return Corrupt("metadata entry {} has no name", ordinal);
    TARE_TRY(auto type, Read<std::uint32_t>("a metadata entry"));
    Value value;
    if (type == kArray) {
      value.array = true;
      TARE_TRY(type, Read<std::uint32_t>("a metadata array"));
      TARE_TRY(value.count, Read<std::uint64_t>("a metadata array"));
      if (type == kArray) {
        return Fail(ErrorKind::kUnsupported,
                    "{}: key '{}' is an array of arrays, which no model uses", file_.name_,
                    Shown(key));
      }
    }
    if (type >= kTypeCount) return Corrupt("key '{}' has unknown value type {}", Shown(key), type);
    value.type = type;

    const std::size_t begin = at_;
    const std::uint64_t least = type == kString ? 8 : kTypeBytes[type];
    if (value.count > left() / least) {
      return Corrupt("key '{}' claims {} values of type {}, {} bytes are left", Shown(key),
                     value.count, kTypeNames[type], left());
    }
    if (type == kString) {
      for (std::uint64_t i = 0; i < value.count; ++i) {
        if (auto text = ReadString("a string"); !text) {
          return Context(std::move(text).error(), "key '{}', element {}", Shown(key), i);
        }
      }
    } else {
      at_ += value.count * kTypeBytes[type];
    }
    value.bytes = bytes_.subspan(begin, at_ - begin);
    if (!file_.values_.emplace(key, value).second)
      return Corrupt("key '{}' appears twice", Shown(key));
    return {};
  }

  Result<std::uint64_t> Alignment() const {
    TARE_TRY(const auto value, file_.IntOr("general.alignment", kDefaultAlignment));
    const auto alignment = static_cast<std::uint64_t>(value);
    if (value < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
      return Corrupt("general.alignment is {}; a power of two from 8 to {} is allowed", value,
                     kMaxAlignment);
    }
    return alignment;
  }

  Status OneTensor(std::uint64_t ordinal) {
    GgufTensor tensor;
    TARE_TRY(tensor.name, ReadString("the name of a tensor"));
    if (tensor.name.empty()) return Corrupt("tensor {} has no name", ordinal);
    const std::string shown = Shown(tensor.name);
    TARE_TRY(const auto rank, Read<std::uint32_t>("a tensor's entry"));
    if (rank < 1 || rank > 4) {
      return Corrupt("tensor '{}' has {} dimensions; 1 to 4 are allowed", shown, rank);
    }
    tensor.rank = static_cast<int>(rank);
    std::int64_t elements = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      TARE_TRY(const auto dim, Read<std::uint64_t>("a tensor's entry"));
      if (dim == 0 || dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          __builtin_mul_overflow(elements, static_cast<std::int64_t>(dim), &elements)) {
        return Corrupt("tensor '{}': dimension {} is {}, which is zero or too large", shown, i,
                       dim);
      }
      tensor.dims[i] = static_cast<std::int64_t>(dim);
    }
    TARE_TRY(const auto type_id, Read<std::uint32_t>("a tensor's entry"));
    TARE_TRY(const auto offset, Read<std::uint64_t>("a tensor's entry"));

    tensor.type = FindGgmlType(type_id);
    if (tensor.type == nullptr) {
      return Fail(ErrorKind::kUnsupported, "{}: tensor '{}' has type id {}, which is not known",
                  file_.name_, shown, type_id);
    }
    if (tensor.type->block_elements == 0) {
      return Fail(
          ErrorKind::kUnsupported,
          "{}: tensor '{}' has type {}, which was removed from GGUF; convert the model anew",
          file_.name_, shown, tensor.type->name);
    }
    if (tensor.dims[0] % tensor.type->block_elements != 0) {
      return Corrupt("tensor '{}' has rows of {} elements, not a multiple of the {} in a {} block",
                     shown, tensor.dims[0], tensor.type->block_elements, tensor.type->name);
    }
    std::int64_t size = 0;
    if (__builtin_mul_overflow(elements / tensor.type->block_elements,
                               static_cast<std::int64_t>(tensor.type->block_bytes), &size)) {
      return Corrupt("tensor '{}' of shape {} is larger than any file", shown, tensor.ShapeText());
    }
    if (offset % alignment_ != 0) {
      return Corrupt("tensor '{}' starts at offset {}, which is not a multiple of {}", shown,
                     offset, alignment_);
    }
    if (!file_.index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return Corrupt("tensor '{}' appears twice", shown);
    }
    file_.tensors_.push_back(tensor);
    offsets_.push_back({offset, static_cast<std::uint64_t>(size)});
    return {};
  }

  // The data section starts at the next aligned byte; tensors must lie inside and apart.
  Status PlaceTensors() {
    if (file_.tensors_.empty()) return {};
    const std::uint64_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const std::uint64_t available = start <= bytes_.size() ? bytes_.size() - start : 0;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const auto [offset, size] = offsets_[i];
      GgufTensor& tensor = file_.tensors_[i];
      if (offset > available || size > available - offset) {
        return Corrupt("tensor '{}' needs {} bytes at offset {} of the data section, which has {}",
                       Shown(tensor.name), size, offset, available);
      }
      tensor.data = bytes_.subspan(start + offset, size);
    }
    std::vector<std::size_t> order(offsets_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [this](std::size_t i) { return offsets_[i].begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Place before = offsets_[order[i - 1]];
      if (offsets_[order[i]].begin < before.begin + before.size) {
        return Corrupt("tensors '{}' and '{}' overlap", Shown(file_.tensors_[order[i - 1]].name),
                       Shown(file_.tensors_[order[i]].name));
      }
    }
    return {};
  }

  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  std::span<const std::byte> bytes_;
  GgufFile& file_;
  std::size_t at_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  std::vector<Place> offsets_;
};

Result<GgufFile> GgufFile::Open(const std::filesystem::path& path) {
  TARE_TRY(MappedFile mapping, MappedFile::Open(path));
  TARE_TRY(GgufFile file, Parse(mapping.bytes(), path.string()));
  file.mapping_ = std::make_shared<const MappedFile>(std::move(mapping));
  return file;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  TARE_RETURN_IF_ERROR(Parser(bytes, file).Run());
  return file;
}

tl::unexpected<Error> GgufFile::WrongType(std::string_view key, const Value& value,
                                          const char* wanted) const {
  return Fail(ErrorKind::kCorrupt, "{}: key '{}' is {}{}, {} is needed", name_, Shown(key),
              value.array ? "an array of " : "a value of type ", kTypeNames[value.type], wanted);
}

Result<const GgufFile::Value*> GgufFile::Lookup(std::string_view key, bool array,
                                                const char* wanted) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return Fail(ErrorKind::kNotFound, "{}: key '{}' is missing", name_, Shown(key));
  }
  if (found->second.array != array) return WrongType(key, found->second, wanted);
  return &found->second;
}

Result<std::string_view> GgufFile::String(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, false, "a string"));
  if (value->type != kString) return WrongType(key, *value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + 8,
                          value->bytes.size() - 8);
}

Result<std::int64_t> GgufFile::Int(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, false, "an integer"));
  const auto number = DecodeInt(value->type, value->bytes.data());
  if (!number) return WrongType(key, *value, "an integer of at most 63 bits");
  return *number;
}

Result<double> GgufFile::Float(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, false, "a float"));
  const auto number = DecodeFloat(value->type, value->bytes.data());
  if (!number) return WrongType(key, *value, "a float");
  return *number;
}

Result<bool> GgufFile::Bool(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, false, "a bool"));
  if (value->type != kBool) return WrongType(key, *value, "a bool");
  return Load<std::uint8_t>(value->bytes.data()) != 0;
}

Result<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, true, "an array of strings"));
  if (value->type != kString) return WrongType(key, *value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  const std::byte* at = value->bytes.data();
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto length = Load<std::uint64_t>(at);  // checked when the file was parsed
    strings.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return strings;
}

Result<std::vector<std::int64_t>> GgufFile::Ints(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, true, "an array of integers"));
  std::vector<std::int64_t> numbers;
  if (value->type == kString) return WrongType(key, *value, "an array of integers");
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto number = DecodeInt(value->type, value->bytes.data() + i * kTypeBytes[value->type]);
    if (!number) return WrongType(key, *value, "an array of integers of at most 63 bits");
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<float>> GgufFile::Floats(std::string_view key) const {
  TARE_TRY(const Value* value, Lookup(key, true, "an array of floats"));
  if (value->type != kF32 && value->type != kF64) {
    return WrongType(key, *value, "an array of floats");
  }
  std::vector<float> numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const std::byte* from = value->bytes.data() + i * kTypeBytes[value->type];
    numbers.push_back(static_cast<float>(*DecodeFloat(value->type, from)));
  }
  return numbers;
}

Result<std::string_view> GgufFile::StringOr(std::string_view key, std::string_view missing) const {
  return OrMissing(String(key), missing);
}
Result<std::int64_t> GgufFile::IntOr(std::string_view key, std::int64_t missing) const {
  return OrMissing(Int(key), missing);
}
Result<double> GgufFile::FloatOr(std::string_view key, double missing) const {
  return OrMissing(Float(key), missing);
}
Result<bool> GgufFile::BoolOr(std::string_view key, bool missing) const {
  return OrMissing(Bool(key), missing);
}

std::vector<std::string_view> GgufFile::Keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& entry : values_) keys.push_back(entry.first);
  return keys;
}

std::string GgufFile::MetadataFor(std::uint32_t file_type) const {
  std::string raw(reinterpret_cast<const char*>(metadata_.data()), metadata_.size());
  const auto found = values_.find("general.file_type");
  if (found == values_.end() || found->second.bytes.size() != sizeof file_type) return raw;
  const auto at = found->second.bytes.data() - metadata_.data();
  std::memcpy(raw.data() + at, &file_type, sizeof file_type);
  return raw;
}

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Result<kernels::TensorView> GgufFile::View(const GgufTensor& tensor) const {
  if (!tensor.type->stored) {
    return Fail(ErrorKind::kUnsupported,
                "{}: tensor '{}' has type {}, which cannot be computed with; docs/MODELS.md lists "
                "the types that can",
                name_, Shown(tensor.name), tensor.type->name);
  }
  return kernels::TensorView{*tensor.type->stored, tensor.elements() / tensor.dims[0],
                             tensor.dims[0], tensor.data};
}

}  // namespace tare::model
