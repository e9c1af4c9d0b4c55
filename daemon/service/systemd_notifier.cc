#include "daemon/service/systemd_notifier.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "shared/base/log.h"
#include "shared/base/status.h"

namespace stoker::service {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

SystemdNotifier::SystemdNotifier() : SystemdNotifier(from_environment("NOTIFY_SOCKET")) {}

SystemdNotifier::SystemdNotifier(std::string socket) {
  if (!socket.empty()) connect(std::move(socket));
}

void SystemdNotifier::connect(std::string name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof address.sun_path) {
    log_warn("sd_notify failed",
             {{"socket", name}, {"error", "not a path or @name of at most 107 bytes"}});
    return;
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  // An abstract socket name starts with a zero byte and is delimited only by its length.
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                             (name[0] == '@' ? 0 : 1));

  socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval limit{0, 200'000};
  if (socket_.valid())
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!socket_.valid() ||
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    log_warn("sd_notify failed",
             {{"socket", name}, {"error", Status::from_errno(errno, "connect").message()}});
    socket_.reset();
  }
}

void SystemdNotifier::send(std::string_view message) {
  if (!socket_.valid()) return;
  ssize_t sent = 0;
  do {
    sent = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return;
  const Status status = Status::from_errno(errno, "NOTIFY_SOCKET");
  if (!failed_.exchange(true, std::memory_order_relaxed))
    log_warn("sd_notify failed", {{"message", message}, {"error", status.message()}});
}

void SystemdNotifier::ready() { send("READY=1"); }

// systemd compares the time with that of the request (Type=notify-reload, since 253).
void SystemdNotifier::reloading(std::chrono::nanoseconds now) {
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now);
  send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds.count()));
}

void SystemdNotifier::alive() { send("WATCHDOG=1"); }
void SystemdNotifier::stopping() { send("STOPPING=1"); }

void SystemdNotifier::status(std::string_view text) {
  // A newline would start another assignment.
  std::string line = "STATUS=";
  for (const char c : text.substr(0, 512)) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  send(line);
}

void SystemdNotifier::extend_timeout(std::chrono::microseconds by) {
  send("EXTEND_TIMEOUT_USEC=" + std::to_string(by.count()));
}

}  // namespace stoker::service
