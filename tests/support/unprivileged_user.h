// UnprivilegedUser: for its lifetime this process has no rights that its user does not have. Root
// becomes an unprivileged user with the groups of root, because root can read and write everything;
// others remain themselves.
//
// Threads: affects all threads of the process.
#pragma once

#include <unistd.h>

#include <cstdlib>

namespace stoker::test {

class UnprivilegedUser {
 public:
  UnprivilegedUser() : was_root_(::geteuid() == 0) {
    constexpr uid_t kUnprivileged = 65534;
    if (was_root_ && ::seteuid(kUnprivileged) != 0) std::abort();
  }
  ~UnprivilegedUser() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }
  UnprivilegedUser(const UnprivilegedUser&) = delete;
  UnprivilegedUser& operator=(const UnprivilegedUser&) = delete;

 private:
  const bool was_root_;
};

}  // namespace stoker::test
