#include "model/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tare::model {

Result<PartFile> PartFile::Create(const std::filesystem::path& path) {
  PartFile file;
  file.path_ = path;
  file.temporary_ = path;
  file.temporary_ += fmt::format(".{}.part", ::getpid());
  file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) {
    return Fail(ErrorKind::kIo, "cannot create '{}': {}", file.temporary_.string(),
                std::strerror(errno));
  }
  return file;
}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

PartFile::~PartFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

Status PartFile::Write(std::span<const std::byte> bytes) {
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

Status PartFile::Commit() {
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
