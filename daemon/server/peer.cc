#include "daemon/server/peer.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>

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

}  // namespace

Result<Peer> peer_of_socket(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return Status::from_errno(errno, "SO_PEERCRED of the control socket");
  return Peer{.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid};
}

Result<UniqueFd> pidfd_of_peer(int fd, const Peer& peer) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0 && pidfd >= 0)
    return UniqueFd(pidfd);
  // Linux before 6.5. The process id could have been reused, but the connection is still in use. A
  // process that uses the connection of an exited one is the operator's responsibility.
  UniqueFd opened(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (opened.valid()) return opened;
  return Status(StatusCode::kUnreachable, "process " + std::to_string(peer.pid) + ": " +
                                              Status::from_errno(errno, "pidfd_open").message());
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
