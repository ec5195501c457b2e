// A blocking loopback socket for tests: sends bytes exactly as given, so that broken requests can
// be made. Every read gives up after ten seconds, so that a hang fails instead of blocking.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tare::net {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    timeval limit{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { Close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void HalfClose() { ::shutdown(fd_, SHUT_WR); }

  // False when the server closed early; what it answered can still be read.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  // What has come up to and including `mark`; all that came when the connection ended before.
  std::string ReadUntil(std::string_view mark) {
    while (true) {
      const std::size_t at = buffer_.find(mark);
      if (at != std::string::npos) return Cut(at + mark.size());
      if (!Fill()) return Cut(buffer_.size());
    }
  }
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return Cut(buffer_.size());
  }
  // One response with a Content-Length.
  std::string ReadResponse() {
    std::string head = ReadUntil("\r\n\r\n");
    const std::size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const std::size_t length = std::stoul(head.substr(at + 16));
    while (buffer_.size() < length && Fill()) {
    }
    return head + Cut(std::min(length, buffer_.size()));
  }
  bool timed_out() const { return timed_out_; }

 private:
  bool Fill() {
    char block[4096];
    const ssize_t count = ::recv(fd_, block, sizeof block, 0);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) timed_out_ = true;
    if (count <= 0) return false;
    buffer_.append(block, static_cast<std::size_t>(count));
    return true;
  }
  std::string Cut(std::size_t count) {
    std::string front = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return front;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool timed_out_ = false;
  std::string buffer_;
};

}  // namespace tare::net
