// Peer: the process at the other end of a connection, as reported by the kernel, and its
// permissions.
//
// Threads: values; functions of their arguments.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::server {

struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  std::shared_ptr<const UniqueFd> maybe_process = {};  // a pidfd; null: there was none
};

// SO_PEERCRED: the process that connected, at the time of the connect(). To be called at once after accept(), because
// Linux before 6.5 tells only its ID, which another process has some time after it has exited.
Result<Peer> peer_of_socket(int fd);

// A copy of its pidfd. kUnreachable: it has exited, or there was none.
Result<UniqueFd> pidfd_of_peer(const Peer& peer);

enum class Role { kRead, kOperate };
std::string_view to_string(Role role);  // "read", "operate"

// The operate role: the owner of the daemon process, root and the listed users. All other users who
// can open the socket (according to its file mode) get the read role.
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

// Resolves control.operators: user names or numeric ids. kInvalidArgument: names the entry that is
// no user on this system.
Result<std::vector<uid_t>> resolve_operators(const std::vector<std::string>& users);

}  // namespace stoker::server
