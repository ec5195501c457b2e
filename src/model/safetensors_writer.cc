#include "model/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace tare::model {
namespace {

int ElementBytes(std::string_view type) {
  constexpr std::pair<std::string_view, int> kTypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2},
                                                         {"I32", 4}, {"I64", 8}, {"I8", 1}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == type) return bytes;
  }
  TARE_CHECK(false);
  return 0;
}

}  // namespace

std::uint64_t SafetensorsEntry::bytes() const {
  auto size = static_cast<std::uint64_t>(ElementBytes(type));
  for (const std::int64_t dimension : shape) size *= static_cast<std::uint64_t>(dimension);
  return size;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::uint64_t begin = end;
    end += entry.bytes();
    header[entry.name] = {
        {"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // values begin at a multiple of 8

  TARE_TRY(PartFile file, PartFile::Create(path));
  const std::uint64_t size = text.size();
  TARE_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&size, 1))));
  TARE_RETURN_IF_ERROR(file.Write(text));
  return SafetensorsWriter(std::move(file), std::move(entries));
}

Status SafetensorsWriter::Add(std::span<const std::byte> values) {
  TARE_CHECK(next_ < entries_.size() && values.size() == entries_[next_].bytes());
  ++next_;
  return file_.Write(values);
}

Status SafetensorsWriter::Commit() {
  TARE_CHECK(next_ == entries_.size());
  return file_.Commit();
}

}  // namespace tare::model
