#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tare {
namespace {

// Closes the descriptor at scope exit.
struct FileDescriptor {
  int value = -1;
  explicit FileDescriptor(int fd) : value(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (value >= 0) ::close(value);
  }
};

Error IoError(const char* what, const std::filesystem::path& path) {
  const int code = errno;
  const ErrorKind kind = code == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo;
  return Error{
      kind, fmt::format("cannot {} '{}': {}", what, path.string(), std::strerror(code)), {}};
}

Status WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return Fail(ErrorKind::kIo, "{}", std::strerror(errno));
    }
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<std::filesystem::path> UserDir(const char* own, const char* xdg, const char* home_suffix) {
  std::filesystem::path dir;
  if (const char* value = std::getenv(own); value != nullptr && *value != '\0') {
    dir = value;
  } else if (const char* base = std::getenv(xdg); base != nullptr && *base != '\0') {
    dir = std::filesystem::path(base) / "tare";
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    dir = std::filesystem::path(home) / home_suffix / "tare";
  } else {
    return Fail(ErrorKind::kIo, "cannot find a directory for Tare's files: set {} or HOME", own);
  }
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) {
    return Fail(ErrorKind::kIo, "cannot create '{}': {}; set {} to a writable directory",
                dir.string(), code.message(), own);
  }
  return dir;
}

}  // namespace

Result<std::string> ReadFile(const std::filesystem::path& path, std::size_t limit) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.value < 0) return tl::unexpected(IoError("open", path));
  struct stat info {};
  if (::fstat(fd.value, &info) != 0) return tl::unexpected(IoError("stat", path));
  if (S_ISDIR(info.st_mode)) {
    return Fail(ErrorKind::kInvalidArgument, "'{}' is a directory, a file is needed",
                path.string());
  }
  std::string content;
  content.reserve(static_cast<std::size_t>(std::max<off_t>(info.st_size, 0)) + 1);
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd.value, buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      return tl::unexpected(IoError("read", path));
    }
    if (n == 0) return content;
    if (content.size() + static_cast<std::size_t>(n) > limit) {
      return Fail(ErrorKind::kInvalidArgument, "'{}' is larger than the limit of {} bytes",
                  path.string(), limit);
    }
    content.append(buffer, static_cast<std::size_t>(n));
  }
}

Status WriteFileAtomic(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.string() + ".XXXXXX";
  FileDescriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (fd.value < 0) return tl::unexpected(IoError("create a file beside", path));
  Status written = WriteAll(fd.value, content);
  if (written && ::fchmod(fd.value, 0644) != 0) {
    written = Fail(ErrorKind::kIo, "{}", std::strerror(errno));
  }
  if (written && ::fsync(fd.value) != 0) {
    written = Fail(ErrorKind::kIo, "{}", std::strerror(errno));
  }
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) {
    written = Fail(ErrorKind::kIo, "{}", std::strerror(errno));
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return Context(written.error(), "cannot write '{}'", path.string());
  }
  return {};
}

Result<std::filesystem::path> UserDataDir() {
  return UserDir("TARE_DATA_DIR", "XDG_DATA_HOME", ".local/share");
}

Result<std::filesystem::path> UserCacheDir() {
  return UserDir("TARE_CACHE_DIR", "XDG_CACHE_HOME", ".cache");
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.value < 0) return tl::unexpected(IoError("open", path));
  struct stat info {};
  if (::fstat(fd.value, &info) != 0) return tl::unexpected(IoError("stat", path));
  if (!S_ISREG(info.st_mode)) {
    return Fail(ErrorKind::kInvalidArgument, "'{}' is not a regular file", path.string());
  }
  if (info.st_size == 0) return MappedFile();
  const std::size_t size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.value, 0);
  if (data == MAP_FAILED) return tl::unexpected(IoError("map", path));
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tare
