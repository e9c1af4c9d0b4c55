// TestClient: a peer that sends exactly the given bytes, valid or not.
//
// Threads:  one.
// Blocking: every call waits up to 20 s, then fails as if the server had sent nothing.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/control/socket_path.h"

namespace stoker::server {

class TestClient {
 public:
  TestClient() : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    for (const int direction : {SO_SNDTIMEO, SO_RCVTIMEO})
      ::setsockopt(fd_.get(), SOL_SOCKET, direction, &timeout, sizeof timeout);
  }
  explicit TestClient(const std::string& path) : TestClient() {
    const auto address = control::SocketAddress::of(path);
    EXPECT_TRUE(address.ok() && connect_to(*address)) << path;
  }

  bool connect_to(const control::SocketAddress& address) {
    return ::connect(fd_.get(), address.get(), address.length()) == 0;
  }

  // True if all bytes were sent.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool send_without_waiting(std::string_view bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
  }

  // The next line without its newline; "" if the connection has ended or on timeout.
  std::string read_line() {
    while (unread_.find('\n') == std::string::npos) {
      if (receive() <= 0) return "";
    }
    const size_t end = unread_.find('\n');
    const std::string line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return line;
  }
  std::string request(std::string_view line) {
    EXPECT_TRUE(send(std::string(line) + "\n")) << line;
    return read_line();
  }

  // True if the server closes the connection without sending anything more.
  bool is_closed() {
    if (!unread_.empty()) return false;
    const ssize_t got = receive();
    return got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE));
  }
  void shutdown_send() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

 private:
  ssize_t receive() {
    std::array<char, 4096> chunk;
    const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
    if (got > 0) unread_.append(chunk.data(), static_cast<size_t>(got));
    return got;
  }

  UniqueFd fd_;
  std::string unread_;
};

}  // namespace stoker::server
