#include "daemon/service/systemd_notifier.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
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

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::chrono::microseconds> find_watchdog_interval(std::string_view usec,
                                                                std::string_view pid, int own_pid) {
  if (!pid.empty() && parse_number(pid) != static_cast<uint64_t>(own_pid)) return std::nullopt;
  const auto number = parse_number(usec);
  constexpr uint64_t kMax =
      1ull << 53;  // 285 years; a larger value is an error and would overflow nanoseconds
  if (!number.has_value() || *number == 0 || *number > kMax) return std::nullopt;
  return std::chrono::microseconds(*number);
}

SystemdNotifier::SystemdNotifier()
    : SystemdNotifier(
          from_environment("NOTIFY_SOCKET"),
          service::find_watchdog_interval(from_environment("WATCHDOG_USEC"),
                                          from_environment("WATCHDOG_PID"), ::getpid())) {}

SystemdNotifier::SystemdNotifier(std::string socket,
                                 std::optional<std::chrono::microseconds> maybe_watchdog)
    : maybe_watchdog_(maybe_watchdog) {
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

namespace {

using control::TrainerState;
using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kWarnAfter = 30s;
// Renewed at each tick, so it only has to outlast a slow tick.
constexpr auto kExtension = 60s;

}  // namespace

Watchdog::Watchdog(SystemdNotifier& notifier, Clock& clock, std::function<uint64_t()> progress)
    : notifier_(notifier),
      clock_(clock),
      progress_(std::move(progress)),
      // Half the interval, so that the warning is logged before systemd kills the process.
      warn_after_(notifier.find_watchdog_interval()
                      ? std::chrono::nanoseconds(*notifier.find_watchdog_interval()) / 2
                      : kWarnAfter),
      seen_(progress_()),
      moved_at_(clock.monotonic()) {}

void Watchdog::tick(const control::TrainerStatus& status) {
  const uint64_t now = progress_();
  const bool moved = now != seen_;
  if (moved) {
    if (logged_)
      log_info("training recovered",
               {{"duration_seconds", std::chrono::duration<double>(stalled_for()).count()}});
    seen_ = now;
    moved_at_ = clock_.monotonic();
    logged_ = false;
  }
  const bool may_stand = may_stall(status.state);
  const bool transition =
      status.state == TrainerState::kStarting || status.state == TrainerState::kStopping;
  if ((moved || may_stand) && transition) notifier_.extend_timeout(kExtension);
  if (moved || may_stand) {
    notifier_.alive();
  } else if (stalled_for() >= warn_after_) {
    log_stall(status);
  }
}

bool Watchdog::may_stall(TrainerState state) const {
  switch (state) {
    case TrainerState::kPaused:
    case TrainerState::kStarting:
      return true;
    case TrainerState::kSaving:
    case TrainerState::kStopping:
      return stalled_for() < kMaxSaveDuration;
    case TrainerState::kTraining:
    case TrainerState::kDegraded:
      return false;
  }
  return false;
}

void Watchdog::log_stall(const control::TrainerStatus& status) {
  if (std::exchange(logged_, true)) return;
  log_error(
      "training stalled",
      {{"duration_seconds", std::chrono::duration<double>(stalled_for()).count()},
       {"state", control::to_string(status.state)},
       {"step", status.step},
       {"ready_batches", status.feed.ready_batches},
       {"hint", status.feed.ready_batches == 0 ? "no batch is ready: check the workers and the disk"
                                               : "batches are ready: the step itself hangs"}});
}

}  // namespace stoker::service
