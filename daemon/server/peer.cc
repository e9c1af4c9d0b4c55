#include "daemon/server/peer.h"

#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>

namespace stoker::server {
namespace {

constexpr int kSoPeerPidfd = 77;  // SO_PEERPIDFD, missing in older headers

Result<uid_t> resolve_user(const std::string& user) {
  const std::string where = "control.operators: '" + user + "'";
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), uid);
  if (error == std::errc() && end == user.data() + user.size()) {
    if (uid != std::numeric_limits<uid_t>::max()) return uid;
    return Status(StatusCode::kInvalidArgument, where + " is not a valid user ID");
  }
  passwd entry{};
  passwd* result = nullptr;
  std::vector<char> buffer(1024);
  int error_number = 0;
  while ((error_number = ::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(),
                                      &result)) == ERANGE &&
         buffer.size() < (1u << 20))
    buffer.resize(buffer.size() * 2);
  if (result != nullptr) return result->pw_uid;
  if (error_number != 0) return Status::from_errno(error_number, where + ": look up the user");
  return Status(StatusCode::kInvalidArgument,
                where + ": no such user on this machine; use a user name or ID");
}

// Since boot, rounded down to the kernel's clock ticks (10 ms).
std::optional<std::chrono::nanoseconds> start_of_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name can contain spaces and brackets. Behind it, the start is the 20th word.
  text.erase(0, std::min(text.size(), text.rfind(')') + 1));
  std::istringstream words(text);
  std::string word;
  for (int i = 1; i < 20; ++i) words >> word;
  int64_t ticks = 0;
  const int64_t ticks_per_second = ::sysconf(_SC_CLK_TCK);
  if (!(words >> ticks) || ticks_per_second <= 0) return std::nullopt;
  return std::chrono::nanoseconds(std::chrono::seconds(1)) * ticks / ticks_per_second;
}

}  // namespace

Result<Peer> peer_of_socket(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return Status::from_errno(errno, "SO_PEERCRED of the control socket");
  timespec now{};
  (void)::clock_gettime(CLOCK_BOOTTIME, &now);
  return Peer{.uid = credentials.uid,
              .gid = credentials.gid,
              .pid = credentials.pid,
              .seen = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)};
}

Result<UniqueFd> pidfd_of_peer(int fd, const Peer& peer) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0 && pidfd >= 0)
    return UniqueFd(pidfd);
  return pidfd_of_process(peer);
}

Result<UniqueFd> pidfd_of_process(const Peer& peer) {
  const std::string name = "process " + std::to_string(peer.pid);
  UniqueFd opened(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!opened.valid())
    return Status(StatusCode::kUnreachable,
                  name + ": " + Status::from_errno(errno, "pidfd_open").message());
  const auto started = start_of_process(peer.pid);
  if (!started)
    return Status(StatusCode::kUnreachable,
                  name +
                      ": /proc does not tell when it was started, which Linux before 6.5 "
                      "requires; mount it without hidepid");
  // What was read is of the process of the pidfd only if that has not exited.
  pollfd exited{.fd = opened.get(), .events = POLLIN, .revents = 0};
  if (*started > peer.seen || ::poll(&exited, 1, 0) != 0)
    return Status(StatusCode::kUnreachable,
                  name + ": the process that connected has exited; connect again");
  return opened;
}

std::string_view to_string(Role role) { return role == Role::kOperate ? "operate" : "read"; }

Role Authorizer::role_of(uid_t uid) const {
  const bool is_listed = std::find(operators_.begin(), operators_.end(), uid) != operators_.end();
  return is_owner_or_root(uid) || is_listed ? Role::kOperate : Role::kRead;
}

Result<std::vector<uid_t>> resolve_operators(const std::vector<std::string>& users) {
  std::vector<uid_t> uids;
  for (const std::string& user : users) {
    STOKER_ASSIGN_OR_RETURN(const uid_t uid, resolve_user(user));
    uids.push_back(uid);
  }
  return uids;
}

}  // namespace stoker::server
