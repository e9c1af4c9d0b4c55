// NotifyListener: the notification socket of systemd.
//
// Threads: one.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::service {

class NotifyListener {
 public:
  enum class Kind { kPath, kAbstract };
  explicit NotifyListener(Kind kind) {
    // The abstract name is as unique as the directory.
    name_ = kind == Kind::kPath ? directory_ / "notify" : "@" + directory_.path();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (kind == Kind::kAbstract) address.sun_path[0] = '\0';
    const size_t length =
        offsetof(sockaddr_un, sun_path) + name_.size() + (kind == Kind::kPath ? 1 : 0);
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(length)),
              0);
  }

  const std::string& name() const { return name_; }
  void close() { socket_.reset(); }

  // All messages so far; a datagram is available as soon as send() has returned.
  std::vector<std::string> take() {
    std::vector<std::string> messages;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) >= 0;)
      messages.emplace_back(buffer, static_cast<size_t>(got));
    return messages;
  }

 private:
  const test::TemporaryDirectory directory_;
  std::string name_;
  UniqueFd socket_;
};

}  // namespace stoker::service
