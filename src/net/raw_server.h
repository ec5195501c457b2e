// A server for tests that does with each connection exactly what the test says, however wrong.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"

namespace tare::net {

class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}

  // Reads until the bytes so far contain `what`; false when the peer closed first.
  bool ReadUntil(std::string_view what) {
    std::string seen;
    char byte = 0;
    while (seen.find(what) == std::string::npos) {
      if (::recv(fd_, &byte, 1, 0) <= 0) return false;
      seen += byte;
    }
    return true;
  }
  // Reads one request with a Content-Length body (or none). Empty when the peer closed.
  std::string ReadRequest() {
    std::string head;
    char byte = 0;
    while (head.find("\r\n\r\n") == std::string::npos) {
      if (::recv(fd_, &byte, 1, 0) <= 0) return {};
      head += byte;
    }
    std::size_t length = 0;
    if (const std::size_t at = head.find("Content-Length: "); at != std::string::npos) {
      length = static_cast<std::size_t>(std::stoul(head.substr(at + 16)));
    }
    std::string body(length, '\0');
    for (std::size_t got = 0; got < length;) {
      const ssize_t n = ::recv(fd_, body.data() + got, length - got, 0);
      if (n <= 0) return {};
      got += static_cast<std::size_t>(n);
    }
    return head + body;
  }
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Waits until the peer has closed.
  void WaitForClose() {
    char buffer[4096];
    while (::recv(fd_, buffer, sizeof buffer, 0) > 0) {
    }
  }
  int fd() const { return fd_; }
  // Closes with a reset instead of an orderly end.
  void Reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }

 private:
  int fd_;
};

class RawServer {
 public:
  // `script` runs on a thread per connection; the connection closes when it returns.
  using Script = std::function<void(RawConnection& connection, int number)>;

  explicit RawServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    TARE_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    TARE_CHECK(::listen(listener_, 256) == 0);
    TARE_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~RawServer() { Stop(); }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  std::uint16_t port() const { return port_; }
  int connections() const { return count_.load(); }
  std::string Url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // Closes the listener and every connection: the server died.
  void Stop() {
    if (stopped_.exchange(true)) return;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }

 private:
  void Accept() {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int number = count_.fetch_add(1);
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      threads_.emplace_back([this, fd, number] {
        RawConnection connection(fd);
        script_(connection, number);
        const std::lock_guard closing(mutex_);
        std::erase(open_, fd);
        ::close(fd);
      });
    }
  }

  Script script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> count_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards open_ and, while accepting, threads_
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// "HTTP/1.1 200 OK" with that body and a Content-Length.
inline std::string PlainResponse(std::string_view body, std::string_view headers = {}) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(headers) + "\r\n" + std::string(body);
}

}  // namespace tare::net
