// peer_user: the user whose process has the other end of a connection of this host.
//
// Threads:  functions of their arguments.
// Blocking: never; one request to the kernel.
#pragma once

#include <sys/types.h>

#include <optional>

namespace stoker::http {

// Of a connected socket: SO_PEERCRED of a Unix socket, sock_diag(7) of a TCP socket. Null: the other
// end is closed, or this process may not ask the kernel.
std::optional<uid_t> user_of_peer(int fd);

}  // namespace stoker::http
