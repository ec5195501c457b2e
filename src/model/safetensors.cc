#include "model/safetensors.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace tare::model {
namespace {

using kernels::StoredType;
using nlohmann::json;

// The format's own limit on the header.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 8;

struct ElementType {
  const char* name;
  int bytes;
  std::optional<StoredType> stored;
};
constexpr ElementType kTypes[] = {
    {"F64", 8, {}},
    {"F32", 4, StoredType::kF32},
    {"F16", 2, StoredType::kF16},
    {"BF16", 2, StoredType::kBf16},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
    {"F8_E8M0", 1, {}},
    {"I64", 8, {}},
    {"I32", 4, {}},
    {"I16", 2, {}},
    {"I8", 1, {}},
    {"U64", 8, {}},
    {"U32", 4, {}},
    {"U16", 2, {}},
    {"U8", 1, {}},
    {"BOOL", 1, {}},
};

template <typename... Args>
tl::unexpected<Error> Corrupt(const std::string& file, fmt::format_string<Args...> format,
                              Args&&... args) {
  return Fail(ErrorKind::kCorrupt, "{}: {} (the file is damaged or incomplete; fetch it again)",
              file, fmt::format(format, std::forward<Args>(args)...));
}

std::optional<std::uint64_t> Unsigned(const json& value) {
  if (!value.is_number_unsigned()) return {};
  return value.get<std::uint64_t>();
}

Result<SafetensorsTensor> ReadTensor(const std::string& file, const std::string& name,
                                     const json& entry, std::span<const std::byte> data) {
  const auto type = entry.is_object() ? entry.find("dtype") : entry.end();
  if (!entry.is_object() || type == entry.end() || !type->is_string()) {
    return Corrupt(file, "tensor '{}' has no dtype", name);
  }
  SafetensorsTensor tensor;
  tensor.type = type->get<std::string>();
  const ElementType* known = nullptr;
  for (const ElementType& each : kTypes) {
    if (tensor.type == each.name) known = &each;
  }
  if (known == nullptr) {
    return Fail(ErrorKind::kUnsupported, "{}: tensor '{}' has dtype '{}', which is not known", file,
                name, tensor.type);
  }
  tensor.stored = known->stored;

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxRank) {
    return Corrupt(file, "tensor '{}' has no shape of at most {} dimensions", name, kMaxRank);
  }
  std::uint64_t size = static_cast<std::uint64_t>(known->bytes);
  for (const json& dimension : *shape) {
    const auto value = Unsigned(dimension);
    if (!value || *value == 0 || *value > std::numeric_limits<std::int64_t>::max() ||
        __builtin_mul_overflow(size, *value, &size)) {
      return Corrupt(file, "tensor '{}': a dimension is {}, which is no size", name,
                     dimension.is_number() ? dimension.dump() : dimension.type_name());
    }
    tensor.shape.push_back(static_cast<std::int64_t>(*value));
  }

  const auto offsets = entry.find("data_offsets");
  const bool pair = offsets != entry.end() && offsets->is_array() && offsets->size() == 2;
  const auto begin = pair ? Unsigned((*offsets)[0]) : std::nullopt;
  const auto end = pair ? Unsigned((*offsets)[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) {
    return Corrupt(file, "tensor '{}' has no pair of data_offsets", name);
  }
  if (*end > data.size()) {
    return Corrupt(file, "tensor '{}' ends at byte {} of the data section, which has {}", name,
                   *end, data.size());
  }
  if (*end - *begin != size) {
    return Corrupt(file, "tensor '{}' has {} bytes, its shape and dtype ask for {}", name,
                   *end - *begin, size);
  }
  tensor.data = data.subspan(*begin, size);
  return tensor;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  TARE_TRY(MappedFile mapping, MappedFile::Open(path));
  TARE_TRY(SafetensorsFile file, Parse(mapping.bytes(), path.string()));
  file.mapping_ = std::make_shared<const MappedFile>(std::move(mapping));
  return file;
}

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  std::uint64_t header = 0;
  if (bytes.size() < sizeof header) return Corrupt(file.name_, "it has {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (header > bytes.size() || header > kMaxHeaderBytes) {
    return Corrupt(file.name_, "it claims a header of {} bytes, {} follow", header, bytes.size());
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const json entries = json::parse(text, text + header, nullptr, false);
  if (!entries.is_object()) {
    return Corrupt(file.name_, "its header of {} bytes is not a JSON object", header);
  }
  const auto data = bytes.subspan(header);
  for (const auto& [key, entry] : entries.items()) {
    if (key == "__metadata__") continue;
    TARE_TRY(auto tensor, ReadTensor(file.name_, key, entry, data));
    file.tensors_.emplace(key, std::move(tensor));
  }
  return file;
}

}  // namespace tare::model
