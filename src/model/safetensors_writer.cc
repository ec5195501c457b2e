#include "model/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

  SafetensorsWriter writer;
  writer.path_ = path;
  writer.temporary_ = path;
  writer.temporary_ += fmt::format(".{}.part", ::getpid());
  writer.entries_ = std::move(entries);
  writer.fd_ = ::open(writer.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) {
    return Fail(ErrorKind::kIo, "cannot create '{}': {}", writer.temporary_.string(),
                std::strerror(errno));
  }
  const std::uint64_t size = text.size();
  TARE_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(&size, 1))));
  TARE_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(text))));
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      entries_(std::move(other.entries_)),
      next_(other.next_),
      fd_(std::exchange(other.fd_, -1)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

Status SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return Fail(ErrorKind::kIo, "cannot write '{}': {}", temporary_.string(),
                  std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status SafetensorsWriter::Add(std::span<const std::byte> values) {
  TARE_CHECK(next_ < entries_.size() && values.size() == entries_[next_].bytes());
  ++next_;
  return Write(values);
}

Status SafetensorsWriter::Commit() {
  TARE_CHECK(next_ == entries_.size());
  const bool synced = ::fsync(fd_) == 0;
  const int error = errno;
  ::close(std::exchange(fd_, -1));
  std::error_code code;
  if (synced) {
    std::filesystem::rename(temporary_, path_, code);
    if (!code) return {};
  }
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
  return Fail(ErrorKind::kIo, "cannot write '{}': {}", path_.string(),
              synced ? code.message() : std::strerror(error));
}

}  // namespace tare::model
