// Peer: who is at the other end of a connection, as the kernel says; and what that user may do.
//
// Threads: values; functions of their arguments.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::control {

struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};

// SO_PEERCRED: of the process that connected, at that time.
Result<Peer> peer_of_socket(int fd);

// A hold on that process. kUnreachable: it has ended, or is not to be seen from here.
Result<UniqueFd> pidfd_of_peer(int fd, const Peer& peer);

enum class Role { kRead, kOperate };
std::string_view to_string(Role role);  // "read", "operate"

// Who may operate: the owner of the daemon's process, root, and the listed users. Everybody else
// who can open the socket (its file mode decides) reads.
class Authorizer {
 public:
  Authorizer(uid_t owner, std::vector<uid_t> operators)
      : owner_(owner), operators_(std::move(operators)) {}

  bool is_owner_or_root(uid_t uid) const { return uid == 0 || uid == owner_; }
  Role role_of(uid_t uid) const;

 private:
  uid_t owner_;
  std::vector<uid_t> operators_;
};

// control.operators: names of users, or numbers. kInvalidArgument: names the entry that is no user
// here.
Result<std::vector<uid_t>> resolve_operators(const std::vector<std::string>& users);

}  // namespace stoker::control
