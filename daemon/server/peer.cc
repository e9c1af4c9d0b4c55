#include "daemon/server/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <utility>

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

// Of the process that connected; not valid: it has exited, or no descriptor is left.
UniqueFd open_process(int fd, pid_t pid) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0) return UniqueFd(pidfd);
  if (errno != ENOPROTOOPT) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // Linux before 6.5
}

}  // namespace

Result<Peer> peer_of_socket(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return Status::from_errno(errno, "SO_PEERCRED of the control socket");
  UniqueFd process = open_process(fd, credentials.pid);
  return Peer{.uid = credentials.uid,
              .gid = credentials.gid,
              .pid = credentials.pid,
              .maybe_process =
                  process.valid() ? std::make_shared<const UniqueFd>(std::move(process)) : nullptr};
}

Result<UniqueFd> pidfd_of_peer(const Peer& peer) {
  const std::string name = "process " + std::to_string(peer.pid);
  if (!peer.maybe_process)
    return Status(StatusCode::kUnreachable,
                  name +
                      ": it exited as it connected, or stokerd had no file descriptor left for it; "
                      "connect again");
  pollfd exited{.fd = peer.maybe_process->get(), .events = POLLIN, .revents = 0};
  if (::poll(&exited, 1, 0) != 0)
    return Status(StatusCode::kUnreachable,
                  name + ": the process that connected has exited; connect again");
  UniqueFd copy(::fcntl(peer.maybe_process->get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return Status::from_errno(errno, name + ": duplicate its pidfd");
  return copy;
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
