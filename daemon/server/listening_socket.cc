#include "daemon/server/listening_socket.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "shared/control/client.h"
#include "shared/control/hello_reply.h"

namespace stoker::server {
namespace {

using std::chrono::milliseconds;

constexpr mode_t kMode = 0660;
constexpr int kBacklog = 64;
constexpr milliseconds kStagingTimeout{5000};
constexpr milliseconds kStagingPoll{10};

Status path_in_use(const std::string& path, const SocketPurpose& purpose) {
  return Status(StatusCode::kAlreadyExists, path + ": path of the " + purpose.name +
                                                " is in use by another file; move it, " +
                                                purpose.suggestion);
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// ---- Existing sockets

// Ok if no process listens on `path`; otherwise the error that names it. A process that does not
// run (SIGSTOP, a hang) listens too: the kernel accepts the connection for it.
Status check_not_listening(const std::string& path, milliseconds timeout,
                           const SocketPurpose& purpose) {
  auto client = control::Client::connect(path, timeout);
  if (client.status().code() == StatusCode::kUnreachable) return {};
  if (!client.ok()) {
    return Status(
        StatusCode::kInvalidArgument,
        purpose.name + " " + path +
            ": cannot determine whether a process listens there: " + client.status().message() +
            "; remove the file if it is not in use, " + purpose.suggestion);
  }
  const auto reply = client->call("hello", "", timeout);
  const auto hello =
      reply.ok() ? control::parse_hello_reply(*reply) : Result<control::HelloReply>(reply.status());
  if (hello.ok()) {
    return Status(StatusCode::kInvalidArgument,
                  purpose.name + " " + path + ": the stokerd of " + hello->run.run_dir + " (pid " +
                      std::to_string(hello->run.pid) + ") listens there; stop it, " +
                      purpose.suggestion);
  }
  const pid_t pid = client->peer_pid();
  return Status(StatusCode::kInvalidArgument,
                purpose.name + " " + path + ": " +
                    (pid > 0 ? "process " + std::to_string(pid) : std::string("a process")) +
                    " listens there but does not answer as stokerd (" + hello.status().message() +
                    "); stop it, " + purpose.suggestion);
}

enum class LinkPolicy {
  kProbeTarget,  // a link to a socket in use is in use
  kReplace,      // replacing a link does not affect the socket
};

// Removes what a crashed daemon left at `path`.
Status remove_stale_socket(const control::SocketAddress& address, const std::string& path,
                           LinkPolicy links, milliseconds timeout, const SocketPurpose& purpose) {
  struct stat found {};
  if (::fstatat(address.directory(), address.name().c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return Status::from_errno(errno, "stat " + path);
  }
  // A crashed daemon can also leave the symlink of link_socket(), which points to a socket or to
  // nothing.
  bool is_socket = S_ISSOCK(found.st_mode);
  if (S_ISLNK(found.st_mode)) {
    struct stat target {};
    is_socket = ::fstatat(address.directory(), address.name().c_str(), &target, 0) == 0
                    ? S_ISSOCK(target.st_mode)
                    : errno == ENOENT;
  }
  if (!is_socket) return path_in_use(path, purpose);
  if (S_ISSOCK(found.st_mode) || links == LinkPolicy::kProbeTarget)
    STOKER_RETURN_IF_ERROR(check_not_listening(path, timeout, purpose));
  if (::unlinkat(address.directory(), address.name().c_str(), 0) != 0 && errno != ENOENT)
    return Status::from_errno(errno, "remove the old " + purpose.name + " " + path);
  return {};
}

// ---- New sockets

// ".NAME.new" next to the socket: mode 0700 and locked, so that no other user and no other daemon
// reaches a socket that is not ready. The destructor removes it.
class StagingDirectory {
 public:
  static Result<StagingDirectory> create(const control::SocketAddress& address,
                                         const std::string& path, const SocketPurpose& purpose);
  StagingDirectory(StagingDirectory&&) = default;
  StagingDirectory& operator=(StagingDirectory&&) = delete;
  ~StagingDirectory() {
    if (!fd_.valid()) return;
    remove_leftover();
    (void)::unlinkat(parent_, name_.c_str(), AT_REMOVEDIR);
  }

  const std::string& path() const { return path_; }
  void remove_leftover() const { (void)::unlinkat(fd_.get(), socket_name_.c_str(), 0); }

 private:
  StagingDirectory(const control::SocketAddress& address, const std::string& socket_path)
      : parent_(address.directory()),
        socket_name_(address.name()),
        name_("." + socket_name_ + ".new"),
        path_((std::filesystem::path(socket_path).parent_path() / name_).string()) {}
  enum class Attempt { kLocked, kRetry };
  Result<Attempt> try_lock(const SocketPurpose& purpose);
  bool is_in_place() const;

  int parent_;
  std::string socket_name_;
  std::string name_;
  std::string path_;
  UniqueFd fd_;
};

bool StagingDirectory::is_in_place() const {
  struct stat held {};
  struct stat found {};
  return ::fstat(fd_.get(), &held) == 0 &&
         ::fstatat(parent_, name_.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
         same_file(held, found);
}

Result<StagingDirectory::Attempt> StagingDirectory::try_lock(const SocketPurpose& purpose) {
  if (::mkdirat(parent_, name_.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::from_errno(errno, "create directory " + path_ + " for the " + purpose.name);
  const UniqueFd handle(
      ::openat(parent_, name_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!handle.valid() && errno == ENOENT) return Attempt::kRetry;  // the previous owner removed it
  if (!handle.valid()) return Status::from_errno(errno, "open " + path_ + ": not a directory?");
  struct stat info {};
  if (::fstat(handle.get(), &info) != 0) return Status::from_errno(errno, "stat " + path_);
  if (info.st_uid != ::geteuid()) {
    return Status(StatusCode::kPermission, path_ + ": belongs to uid " +
                                               std::to_string(info.st_uid) + "; remove it, " +
                                               purpose.suggestion);
  }
  // The umask can have removed rights of the owner.
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(handle.get());
  if ((info.st_mode & 07777) != 0700 && ::chmod(by_descriptor.c_str(), 0700) != 0)
    return Status::from_errno(errno, "chmod " + path_);
  fd_ = UniqueFd(::openat(handle.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_.valid()) return Status::from_errno(errno, "open " + path_);
  // Any other error: the file system does not support the lock.
  const bool is_held_elsewhere = ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!is_held_elsewhere && is_in_place()) return Attempt::kLocked;
  fd_.reset();
  return Attempt::kRetry;
}

Result<StagingDirectory> StagingDirectory::create(const control::SocketAddress& address,
                                                  const std::string& path,
                                                  const SocketPurpose& purpose) {
  StagingDirectory staging(address, path);
  const auto deadline = std::chrono::steady_clock::now() + kStagingTimeout;
  while (true) {
    STOKER_ASSIGN_OR_RETURN(const Attempt attempt, staging.try_lock(purpose));
    if (attempt == Attempt::kLocked) break;
    if (std::chrono::steady_clock::now() > deadline) {
      return Status(StatusCode::kBusy, purpose.name + " " + path +
                                           ": another stokerd is starting there; try again, " +
                                           purpose.suggestion);
    }
    std::this_thread::sleep_for(kStagingPoll);
  }
  staging.remove_leftover();
  return staging;
}

// RENAME_NOREPLACE, so that a file that another program has created meanwhile is not replaced.
Status move_socket(const control::SocketAddress& from, const control::SocketAddress& to,
                   const std::string& path, const SocketPurpose& purpose) {
  const auto rename = [&](unsigned flags) {
    return ::syscall(SYS_renameat2, from.directory(), from.name().c_str(), to.directory(),
                     to.name().c_str(), flags) == 0;
  };
  // EINVAL: the file system does not support the flag.
  if (rename(RENAME_NOREPLACE) || (errno == EINVAL && rename(0))) return {};
  if (errno == EEXIST) return path_in_use(path, purpose);
  return Status::from_errno(errno, "move the " + purpose.name + " to " + path);
}

}  // namespace

Result<ListeningSocket> ListeningSocket::open(const std::string& path, milliseconds probe_timeout,
                                              const SocketPurpose& purpose) {
  STOKER_ASSIGN_OR_RETURN(auto address, control::SocketAddress::of(path));
  STOKER_ASSIGN_OR_RETURN(const auto staging, StagingDirectory::create(address, path, purpose));
  STOKER_RETURN_IF_ERROR(
      remove_stale_socket(address, path, LinkPolicy::kProbeTarget, probe_timeout, purpose));
  STOKER_ASSIGN_OR_RETURN(const auto staged,
                          control::SocketAddress::of(join_path(staging.path(), address.name())));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno(errno, "create the " + purpose.name);
  if (::bind(fd.get(), staged.get(), staged.length()) != 0)
    return Status::from_errno(errno, "bind the " + purpose.name + " " + path);
  // No other user can reach the file until it is moved, and none can replace it.
  struct stat created {};
  if (::fchmodat(staged.directory(), staged.name().c_str(), kMode, 0) != 0 ||
      ::fstatat(staged.directory(), staged.name().c_str(), &created, AT_SYMLINK_NOFOLLOW) != 0)
    return Status::from_errno(errno, "set the mode of the " + purpose.name + " " + path);
  if (::listen(fd.get(), kBacklog) != 0)
    return Status::from_errno(errno, "listen on the " + purpose.name + " " + path);
  STOKER_RETURN_IF_ERROR(move_socket(staged, address, path, purpose));
  return ListeningSocket(std::move(fd), std::move(address), created);
}

void ListeningSocket::remove() {
  if (!maybe_address_) return;
  struct stat found {};
  const auto& address = *maybe_address_;
  if (address.directory() >= 0 &&
      ::fstatat(address.directory(), address.name().c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
      same_file(found, created_))
    (void)::unlinkat(address.directory(), address.name().c_str(), 0);
  maybe_address_.reset();
}

Status link_socket(const std::string& link_path, const std::string& socket_path,
                   milliseconds probe_timeout) {
  std::error_code error;
  const std::string target = std::filesystem::absolute(socket_path, error).string();
  if (error) return Status::from_errno(error.value(), "resolve " + socket_path);
  // The same path in another spelling, or an existing symlink.
  struct stat at_link {};
  struct stat at_target {};
  if (::stat(link_path.c_str(), &at_link) == 0 && ::stat(target.c_str(), &at_target) == 0 &&
      same_file(at_link, at_target))
    return {};
  STOKER_ASSIGN_OR_RETURN(const auto address, control::SocketAddress::of(link_path));
  STOKER_RETURN_IF_ERROR(remove_stale_socket(address, link_path, LinkPolicy::kReplace,
                                             probe_timeout, SocketPurpose()));
  if (::symlinkat(target.c_str(), address.directory(), address.name().c_str()) != 0)
    return Status::from_errno(errno,
                              "create symlink " + link_path + " to the control socket " + target);
  return {};
}

void unlink_socket(const std::string& link_path, const std::string& socket_path) {
  std::error_code error;
  const auto target = std::filesystem::absolute(socket_path, error);
  if (!error && std::filesystem::read_symlink(link_path, error) == target)
    (void)std::filesystem::remove(link_path, error);
}

}  // namespace stoker::server
