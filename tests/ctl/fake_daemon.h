// FakeDaemon: answers requests on a control socket as the test says.
//
// Threads: a separate one; stop() and the destructor join it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/control/hello_reply.h"
#include "shared/control/socket_path.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::ctl {

// Listens on a control socket and answers each line; no answer closes the connection. `hello` is
// answered with `maybe_hello` and not recorded.
class FakeDaemon {
 public:
  using Reply = std::function<std::optional<std::string>(const std::string& line)>;

  // `as_another_user`: for root only.
  FakeDaemon(const std::string& path, Reply reply,
             std::optional<control::HelloReply> maybe_hello = std::nullopt,
             bool as_another_user = false)
      : reply_(std::move(reply)), maybe_hello_(std::move(maybe_hello)) {
    const auto address = control::SocketAddress::of(path);
    fd_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd_.get(), address->get(), address->length()), 0);
    {
      std::optional<test::UnprivilegedUser> user;
      if (as_another_user) user.emplace();
      EXPECT_EQ(::listen(fd_.get(), 4), 0);
    }
    thread_ = std::jthread([this](std::stop_token stop) { serve(stop); });
  }
  std::vector<std::string> stop() {
    if (thread_.joinable()) {
      thread_.request_stop();
      thread_.join();
    }
    return requests_;
  }

 private:
  static bool readable(int fd, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&poll_fd, 1, 20) > 0) return true;
    }
    return false;
  }
  void serve(const std::stop_token& stop) {
    while (readable(fd_.get(), stop))
      serve_client(UniqueFd(::accept(fd_.get(), nullptr, nullptr)), stop);
  }
  void serve_client(const UniqueFd& client, const std::stop_token& stop) {
    std::string line;
    char c = 0;
    while (readable(client.get(), stop) && ::recv(client.get(), &c, 1, 0) == 1) {
      if (c != '\n') {
        line += c;
        continue;
      }
      const auto reply = reply_to(std::exchange(line, ""));
      if (!reply.has_value()) return;
      const std::string text = *reply + "\n";
      (void)::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }

  std::optional<std::string> reply_to(const std::string& line) {
    if (maybe_hello_ && line.find("\"hello\"") != std::string::npos)
      return R"({"id":1,"result":)" + control::to_json(*maybe_hello_) + "}";
    requests_.push_back(line);
    return reply_(line);
  }

  Reply reply_;
  std::optional<control::HelloReply> maybe_hello_;
  UniqueFd fd_;
  std::vector<std::string> requests_;  // read after the thread has ended
  std::jthread thread_;
};

}  // namespace stoker::ctl
