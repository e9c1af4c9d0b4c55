#include "shared/control/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "shared/control/protocol.h"
#include "shared/control/socket_path.h"

namespace stoker::control {
namespace {

using std::chrono::milliseconds;
constexpr size_t kMaxReplyBytes = 4 << 20;  // a peer that sends more does not speak this protocol

Status connect_error(const std::string& path, int error) {
  const std::string where = "no daemon is reachable on " + path;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Status(StatusCode::kUnreachable, where + ": no such socket; is stokerd running?");
    case ECONNREFUSED:
      return Status(StatusCode::kUnreachable,
                    where + ": connection refused; stokerd has exited or was killed");
    case EACCES:
    case EPERM:
      return Status(StatusCode::kPermission,
                    path +
                        ": permission denied for this user; run as the socket's "
                        "owner or as a member of its group");
    case EAGAIN:
      return Status(StatusCode::kTimedOut, where + ": too many clients are waiting; try again");
    default:
      return Status::from_errno(error, "connect to " + path);
  }
}

ucred credentials_of_listener(int fd) {
  ucred credentials{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t length = sizeof credentials;
  (void)::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length);  // unchanged on failure
  return credentials;
}

}  // namespace

Result<Client> Client::connect(const std::string& path, milliseconds timeout) {
  auto address = SocketAddress::of(path);
  if (!address.ok()) {
    if (address.status().code() != StatusCode::kNotFound) return address.status();
    return connect_error(path, ENOENT);
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno(errno, "create a socket");
  // For a Unix socket this also bounds connect(), which blocks while the daemon's backlog is full.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timeval send_timeout{
      .tv_sec = seconds.count(),
      .tv_usec = std::chrono::duration_cast<std::chrono::microseconds>(timeout - seconds).count()};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof send_timeout);
  int connected = -1;
  do {
    connected = ::connect(fd.get(), address->get(), address->length());
  } while (connected != 0 && errno == EINTR);
  if (connected != 0) return connect_error(path, errno);
  return Client(std::move(fd), path);
}

Result<std::string> Client::call(std::string_view method, std::string_view params,
                                 milliseconds timeout) {
  STOKER_ASSIGN_OR_RETURN(
      const std::string reply,
      exchange(render_request(std::to_string(next_id_++), method, params), timeout));
  return parse_reply(reply);
}

Result<std::string> Client::call(std::string_view method, std::string_view params,
                                 milliseconds timeout,
                                 const std::function<void(const Notification&)>& on_notification) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  STOKER_RETURN_IF_ERROR(
      send_line(render_request(std::to_string(next_id_++), method, params), deadline));
  while (true) {
    STOKER_ASSIGN_OR_RETURN(const std::string line, read_line(deadline));
    const auto notification = parse_notification(line);
    if (!notification.ok()) return parse_reply(line);
    on_notification(*notification);
  }
}

Result<std::string> Client::exchange(std::string_view line, milliseconds timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  const Status sent = send_line(line, deadline);
  // A daemon that rejects a connection writes the reason before it closes, so its reply is more
  // useful than our EPIPE.
  auto reply = read_line(deadline);
  if (!reply.ok() && !sent.ok()) return sent;
  return reply;
}

pid_t Client::peer_pid() const { return credentials_of_listener(fd_.get()).pid; }

uid_t Client::peer_uid() const { return credentials_of_listener(fd_.get()).uid; }

Status Client::wait_for(short events, Deadline deadline) const {
  while (true) {
    const auto remaining =
        std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (remaining.count() <= 0) break;
    pollfd poll_fd{.fd = fd_.get(), .events = events, .revents = 0};
    const int ready =
        ::poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(remaining.count(), 1 << 30)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "wait for " + path_);
  }
  return Status(StatusCode::kTimedOut,
                "the daemon on " + path_ + " did not reply in time; is it stopped or overloaded?");
}

Status Client::send_line(std::string_view line, Deadline deadline) {
  std::string bytes(line);
  bytes += '\n';
  std::string_view remaining = bytes;
  while (!remaining.empty()) {
    const ssize_t sent =
        ::send(fd_.get(), remaining.data(), remaining.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      remaining.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      STOKER_RETURN_IF_ERROR(wait_for(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Status(StatusCode::kUnreachable, "the daemon on " + path_ + " closed the connection");
    }
  }
  return {};
}

Result<std::string> Client::read_line(Deadline deadline) {
  size_t scanned = 0;
  while (true) {
    const size_t end = unread_.find('\n', scanned);
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    scanned = unread_.size();
    if (scanned > kMaxReplyBytes)
      return Status(StatusCode::kCorrupt,
                    path_ + ": the peer is not stokerd: reply without a newline");
    STOKER_RETURN_IF_ERROR(wait_for(POLLIN, deadline));
    std::array<char, 16384> chunk;
    const ssize_t received = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (received > 0) {
      unread_.append(chunk.data(), static_cast<size_t>(received));
    } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Status(StatusCode::kUnreachable,
                    "the daemon on " + path_ + " closed the connection before it replied");
    }
  }
}

}  // namespace stoker::control
