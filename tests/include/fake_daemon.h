// FakeDaemon: answers requests on a control socket with given lines and a descriptor, also those that
// stokerd never sends.
//
// Threads:   its own serves one connection after the other; the setters may be called before a client
//            connects.
// Ownership: removes its directory.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::producer {

inline UniqueFd listen_on(const std::string& path) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 8) != 0)
    std::abort();
  return listener;
}

class FakeDaemon {
 public:
  FakeDaemon() {
    struct stat info {};
    if (::stat(directory().c_str(), &info) != 0) std::abort();
    hello_ = R"({"id":1,"result":{"run_dir":"/runs/fake","run_dir_id":")" +
             std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + R"("}})";
    listener_ = listen_on(socket());
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  ~FakeDaemon() {
    thread_.request_stop();
    thread_.join();
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& directory() const { return directory_.path(); }
  std::string socket() const { return directory_ / "control.sock"; }

  // Without its newline, which is added unless the line is empty: then the connection is closed.
  void set_hello(std::string line) { set(hello_, std::move(line)); }
  // `descriptor`: duplicated for every reply; -1 for none.
  void set_attach(std::string line, int descriptor) {
    set(attach_, std::move(line));
    const std::lock_guard lock(mutex_);
    descriptor_ = UniqueFd(descriptor < 0 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  }
  void set_attach(uint32_t index, uint32_t generation, int descriptor) {
    set_attach(R"({"id":1,"result":{"producer":)" + std::to_string(index) + R"(,"generation":)" +
                   std::to_string(generation) +
                   R"(,"format":2,"mode":"external","timeout_seconds":6.05E1}})",
               descriptor);
  }
  // Accepts requests without answering.
  void be_silent() {
    const std::lock_guard lock(mutex_);
    is_silent_ = true;
  }

 private:
  void set(std::string& line, std::string value) {
    const std::lock_guard lock(mutex_);
    line = std::move(value);
  }
  static bool readable(int fd, const std::stop_token& stop) {
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    while (!stop.stop_requested())
      if (::poll(&one, 1, 10) > 0) return true;
    return false;
  }
  void serve(const std::stop_token& stop) {
    while (readable(listener_.get(), stop)) {
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      while (readable(client.get(), stop)) {
        char request[4096];
        const ssize_t count = ::recv(client.get(), request, sizeof request, 0);
        if (count <= 0 || !answer(client.get(), {request, static_cast<size_t>(count)})) break;
      }
    }
  }
  bool answer(int client, const std::string& request) {
    const std::lock_guard lock(mutex_);
    if (is_silent_) return true;
    const bool is_hello = request.find("hello") != std::string::npos;
    std::string line = is_hello ? hello_ : attach_;
    if (line.empty()) return false;
    line += '\n';
    iovec part{.iov_base = line.data(), .iov_len = line.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!is_hello && descriptor_.valid()) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = descriptor_.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return ::sendmsg(client, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  }

  const test::TemporaryDirectory directory_;
  UniqueFd listener_;

  std::mutex mutex_;  // guards the following
  std::string hello_;
  std::string attach_;
  UniqueFd descriptor_;
  bool is_silent_ = false;

  std::jthread thread_;
};

}  // namespace stoker::producer
