// ProducerClient: the other side of a stream of external producers.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream::testing {

inline sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

// A socket that producers connect to. Its file is replaced.
inline InputDescriptor listen_at(const std::string& path, int backlog = 64) {
  (void)::unlink(path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = socket_address(path);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), backlog), 0);
  return {.fd = std::move(fd), .name = path};
}

class ProducerClient {
 public:
  static constexpr std::chrono::seconds kTimeout{60};  // never reached in a successful test

  // Connects; the socket is not valid if no process listens.
  explicit ProducerClient(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = socket_address(path);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      fd_.reset();
  }
  ProducerClient(const std::string& path, const std::string& first_line) : ProducerClient(path) {
    (void)send(first_line);
  }

  bool is_connected() const { return fd_.valid(); }
  // False: the other side has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) return false;
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Independent of the system's default. Before the first send.
  void set_send_buffer(int bytes) const {
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  // As many as the socket takes without waiting.
  size_t send_available(std::string_view bytes) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  // Without its end; empty: closed, or nothing within the timeout.
  std::string read_line(std::chrono::milliseconds timeout = kTimeout) {
    for (;;) {
      const size_t end = received_.find('\n');
      if (end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, static_cast<int>(timeout.count())) <= 0) return "";
      std::array<char, 4096> bytes;
      const ssize_t got = ::read(fd_.get(), bytes.data(), bytes.size());
      if (got <= 0) return "";
      received_.append(bytes.data(), static_cast<size_t>(got));
    }
  }
  // The offset of the reply; nullopt: rejected, or closed.
  std::optional<uint64_t> read_offset(std::chrono::milliseconds timeout = kTimeout) {
    boost::system::error_code error;
    const auto reply = boost::json::parse(read_line(timeout), error);
    if (error || !reply.is_object() || !reply.as_object().contains("offset")) return std::nullopt;
    return reply.at("offset").to_number<uint64_t>();
  }
  bool has_ended() { return read_line().empty(); }
  // Whether the other side has closed the connection, and all was read that it has sent.
  bool is_closed() const {
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ||
           (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  void close() { fd_.reset(); }
  // Sends no more, and can receive the last line.
  void finish() { ::shutdown(fd_.get(), SHUT_WR); }

 private:
  UniqueFd fd_;
  std::string received_;
};

inline std::string hello(const std::string& name, bool can_replay = true) {
  return "{\"format\":1,\"name\":\"" + name + "\"" + (can_replay ? "" : ",\"replay\":false") +
         "}\n";
}
inline constexpr char kEndOfStream[] = "{\"format\":1,\"end\":true}\n";

}  // namespace stoker::data::stream::testing
