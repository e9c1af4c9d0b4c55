#include "shared/base/directory_root.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace stoker {

struct DirectoryRoot::Root {
  UniqueFd fd;
  std::string path;
  std::vector<std::string> names;  // without a slash at the end
  bool is_of_another_user = false;
  uid_t owner = 0;
  gid_t group = 0;
};

// Of the process, in the order in which they were opened.
class DirectoryRoots {
 public:
  using Root = DirectoryRoot::Root;
  struct Found {
    std::shared_ptr<const Root> root;
    std::string rest;  // relative to it
  };

  static DirectoryRoots& of_process();
  std::optional<Found> find(const std::string& path);
  void add(std::shared_ptr<const Root> root);
  void remove(const std::shared_ptr<const Root>& root);

 private:
  std::shared_mutex mutex_;
  std::vector<std::shared_ptr<const Root>> roots_;  // guarded by mutex_
};

namespace {

// The part of `path` behind `directory`; nullopt: it is not below it.
std::optional<std::string> part_below(std::string_view path, std::string_view directory) {
  if (!path.starts_with(directory)) return std::nullopt;
  path.remove_prefix(directory.size());
  if (!path.empty() && path.front() != '/' && !directory.ends_with('/')) return std::nullopt;
  path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
  std::string rest = std::filesystem::path(path).lexically_normal().string();
  while (rest.ends_with('/')) rest.pop_back();
  if (rest == "..") return std::nullopt;
  if (rest.starts_with("../")) return std::nullopt;
  if (rest == ".") rest.clear();
  return rest;
}

Status symlink_error(const std::string& name) {
  return Status(StatusCode::kInvalidArgument,
                name +
                    ": a symlink, which is not followed in a run directory; replace it by what "
                    "it refers to");
}

Status special_file_error(const std::string& name) {
  return Status(StatusCode::kInvalidArgument, name + ": not a regular file; remove it");
}

bool is_symlink(int directory, const std::string& name) {
  struct stat info {};
  return ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

// ENXIO: a socket, a FIFO without a reader, or a device without a driver.
Status error_of(int error, const std::string& name) {
  if (error == ELOOP) return symlink_error(name);
  if (error == ENXIO || error == ENODEV) return special_file_error(name);
  return Status::from_errno(error, "open " + name);
}

Result<UniqueFd> open_components(int directory, std::string_view path, int flags, mode_t mode,
                                 const std::string& name) {
  UniqueFd fd;  // of the component before
  do {
    std::string component(path.substr(0, path.find('/')));
    path.remove_prefix(std::min(path.size(), component.size() + 1));
    if (component.empty()) component = ".";
    const int above = fd.valid() ? fd.get() : directory;
    const int wanted = path.empty() ? flags : O_PATH | O_DIRECTORY | O_CLOEXEC;
    UniqueFd next(::openat(above, component.c_str(), wanted | O_NOFOLLOW, mode));
    if (!next.valid()) {
      const int error = errno;
      if (error == ENOTDIR && is_symlink(above, component)) return symlink_error(name);
      return error_of(error, name);
    }
    fd = std::move(next);
  } while (!path.empty());
  return fd;
}

Result<UniqueFd> open_by_kernel(int directory, std::string_view path, int flags, mode_t mode,
                                const std::string& name) {
  const std::string relative = path.empty() ? "." : std::string(path);
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;  // else EINVAL
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  UniqueFd fd(
      static_cast<int>(::syscall(SYS_openat2, directory, relative.c_str(), &how, sizeof how)));
  if (fd.valid()) return fd;
  // EPERM: of a seccomp filter that does not know it.
  if (errno == ENOSYS || errno == EPERM) return open_components(directory, path, flags, mode, name);
  return error_of(errno, name);
}

// Opens a directory as the kernel does, one component after the other, and remembers the symlinks of others that it
// has followed: their owners can change where they lead.
class DirectoryWalk {
 public:
  explicit DirectoryWalk(const std::string& path) : path_(path), rest_(path) {}
  Result<UniqueFd> run();
  // For the directory that run() has opened.
  Status check_links(int directory) const;

 private:
  static constexpr int kMaxLinks = 40;  // as in the kernel

  struct Link {
    std::string name;
    std::string target;
    uid_t owner = 0;
  };
  Status start();
  Status step(const std::string& name);
  Status follow(int link, const std::string& name);

  const std::string path_;
  std::string rest_;  // behind at_
  UniqueFd at_;
  std::string at_name_;
  int num_links_ = 0;
  std::vector<Link> links_of_others_;
};

// From the root or the working directory, as rest_ tells.
Status DirectoryWalk::start() {
  at_name_ = rest_.starts_with('/') ? "/" : ".";
  at_ = UniqueFd(::open(at_name_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return at_.valid() ? Status() : Status::from_errno(errno, "open " + path_);
}

Result<UniqueFd> DirectoryWalk::run() {
  if (path_.empty()) return Status::from_errno(ENOENT, "open a directory without a name");
  STOKER_RETURN_IF_ERROR(start());
  while (true) {
    rest_.erase(0, rest_.find_first_not_of('/'));
    if (rest_.empty()) return std::move(at_);
    const std::string name = rest_.substr(0, rest_.find('/'));
    rest_.erase(0, name.size());
    STOKER_RETURN_IF_ERROR(step(name));
  }
}

Status DirectoryWalk::step(const std::string& name) {
  // O_DIRECTORY mounts what is mounted on demand.
  constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd next(::openat(at_.get(), name.c_str(), kFlags | O_DIRECTORY));
  if (next.valid()) {
    if (!at_name_.ends_with('/')) at_name_ += '/';
    at_name_ += name;
    at_ = std::move(next);
    return {};
  }
  const int error = errno;
  if (error != ENOTDIR && error != ELOOP) return Status::from_errno(error, "open " + path_);
  next = UniqueFd(::openat(at_.get(), name.c_str(), kFlags));
  return next.valid() ? follow(next.get(), name) : Status::from_errno(errno, "open " + path_);
}

Status DirectoryWalk::follow(int link, const std::string& name) {
  struct stat info {};
  if (::fstat(link, &info) != 0) return Status::from_errno(errno, "stat " + path_);
  if (!S_ISLNK(info.st_mode)) return Status::from_errno(ENOTDIR, "open " + path_);
  if (++num_links_ > kMaxLinks) return Status::from_errno(ELOOP, "open " + path_);
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(link, "", target.data(), target.size());
  if (size <= 0) return Status::from_errno(size < 0 ? errno : ENOENT, "read link " + path_);
  target.resize(static_cast<size_t>(size));
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    links_of_others_.push_back(
        {.name = (at_name_.ends_with('/') ? at_name_ : at_name_ + '/') + name,
         .target = target.starts_with('/') ? target : join_path(at_name_, target),
         .owner = info.st_uid});
  rest_.insert(0, target);
  return target.starts_with('/') ? start() : Status();
}

// A link of the directory's owner gives that user nothing: the directory could be in its place.
Status DirectoryWalk::check_links(int directory) const {
  struct stat info {};
  if (::fstat(directory, &info) != 0) return Status::from_errno(errno, "stat " + path_);
  for (const Link& link : links_of_others_) {
    if (link.owner == info.st_uid) continue;
    return Status(StatusCode::kInvalidArgument,
                  path_ + ": leads through the symlink " + link.name + " of uid " +
                      std::to_string(link.owner) +
                      ", who can change where it leads; use the path behind it (" + link.target +
                      "), or chown -h it to yourself or root");
  }
  return {};
}

bool has_parent_name(std::string_view path) {
  return path == ".." || path.starts_with("../") || path.ends_with("/..") ||
         path.find("/../") != path.npos;
}

}  // namespace

DirectoryRoots& DirectoryRoots::of_process() {
  // Never destroyed, because threads can open files while the program exits.
  static DirectoryRoots* const directories = new DirectoryRoots;
  return *directories;
}

std::optional<DirectoryRoots::Found> DirectoryRoots::find(const std::string& path) {
  const std::shared_lock lock(mutex_);
  std::optional<Found> found;
  for (const auto& root : roots_) {
    for (const std::string& name : root->names) {
      auto rest = part_below(path, name);
      // Of several, the innermost; of the same, the last.
      if (rest && (!found || rest->size() <= found->rest.size()))
        found = Found{.root = root, .rest = *std::move(rest)};
    }
  }
  return found;
}

void DirectoryRoots::add(std::shared_ptr<const Root> root) {
  const std::unique_lock lock(mutex_);
  roots_.push_back(std::move(root));
}

void DirectoryRoots::remove(const std::shared_ptr<const Root>& root) {
  const std::unique_lock lock(mutex_);
  std::erase(roots_, root);
}

Result<DirectoryRoot> DirectoryRoot::open(const std::string& path, PathLinks links) {
  DirectoryWalk walk(path);
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, walk.run());
  if (links == PathLinks::kOfTrustedUsers) STOKER_RETURN_IF_ERROR(walk.check_links(fd.get()));
  return open(path, std::move(fd));
}

Result<DirectoryRoot> DirectoryRoot::create(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0) return Status::from_errno(errno, "mkdir " + path);
  UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  return open(path, std::move(fd));
}

Result<DirectoryRoot> DirectoryRoot::open(const std::string& path, UniqueFd fd) {
  namespace fs = std::filesystem;
  auto root = std::make_shared<Root>();
  root->fd = std::move(fd);
  root->path = path;
  struct stat info {};
  if (::fstat(root->fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  root->is_of_another_user = info.st_uid != ::geteuid();
  root->owner = info.st_uid;
  root->group = info.st_gid;
  std::error_code error;
  const auto absolute = fs::absolute(path, error).lexically_normal();
  const auto canonical = fs::canonical(path, error);
  for (std::string name : {path, absolute.string(), canonical.string()}) {
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    if (!name.empty() && std::ranges::find(root->names, name) == root->names.end())
      root->names.push_back(std::move(name));
  }
  DirectoryRoot directory(root);
  DirectoryRoots::of_process().add(std::move(root));
  return directory;
}

DirectoryRoot& DirectoryRoot::operator=(DirectoryRoot&& other) noexcept {
  std::swap(root_, other.root_);
  return *this;
}

DirectoryRoot::~DirectoryRoot() {
  if (root_) DirectoryRoots::of_process().remove(root_);
}

bool DirectoryRoot::is_replaced() const {
  struct stat opened {};
  struct stat named {};
  if (::fstat(root_->fd.get(), &opened) != 0 || ::stat(root_->path.c_str(), &named) != 0)
    return false;
  return opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

Result<UniqueFd> open_beneath(int directory, std::string_view path, int flags, mode_t mode,
                              const std::string& name, PathResolution resolution) {
  if (path.starts_with('/') || has_parent_name(path))
    return Status(StatusCode::kPermission, name + ": not below its directory");
  // O_NONBLOCK: opening a FIFO must not wait. Neither affects a regular file.
  constexpr int kNeverWait = O_NONBLOCK | O_NOCTTY;
  flags |= O_CLOEXEC | ((flags & O_PATH) != 0 ? 0 : kNeverWait);
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, resolution == PathResolution::kKernel
                                           ? open_by_kernel(directory, path, flags, mode, name)
                                           : open_components(directory, path, flags, mode, name));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + name);
  if (S_ISLNK(info.st_mode)) return symlink_error(name);  // with O_PATH
  const bool is_for_any = (flags & (O_PATH | O_DIRECTORY)) != 0;
  if (!is_for_any && !S_ISREG(info.st_mode)) return special_file_error(name);
  return fd;
}

namespace {

// Gives what root has created to the owner of the directory, who could neither read nor replace it otherwise.
// Not what is private (mode 0600): it can have secrets of root.
void give_to_owner(const DirectoryRoots::Root& root, int fd, mode_t mode) {
  if (::geteuid() == 0 && (mode & (S_IRWXG | S_IRWXO)) != 0)
    (void)::fchown(fd, root.owner, root.group);  // denied, as by NFS: it stays root's
}

// Opens a file for writing below the directory of another user, who can have linked a file of the caller
// there: it is neither written nor truncated. Where fs.protected_hardlinks is 0, that needs no rights.
Result<UniqueFd> open_for_writing_of_another(const DirectoryRoots::Found& found, int flags,
                                             mode_t mode, const std::string& path) {
  const int directory = found.root->fd.get();
  const bool truncates = (flags & O_TRUNC) != 0;
  flags &= ~O_TRUNC;
  if ((flags & O_CREAT) != 0) {
    auto created = open_beneath(directory, found.rest, flags | O_EXCL, mode, path);
    if (created.ok()) give_to_owner(*found.root, created->get(), mode);
    const bool exists = created.status().code() == StatusCode::kAlreadyExists;
    if (!exists || (flags & O_EXCL) != 0) return created;
  }
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open_beneath(directory, found.rest, flags, mode, path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (S_ISREG(info.st_mode) && info.st_nlink > 1)
    return Status(StatusCode::kInvalidArgument,
                  path + ": has " + std::to_string(info.st_nlink) +
                      " hard links, in a directory of another user, and can be a file outside of "
                      "it; replace it by a copy");
  if (truncates && ::ftruncate(fd.get(), 0) != 0)
    return Status::from_errno(errno, "truncate " + path);
  return fd;
}

}  // namespace

Result<UniqueFd> open_path(const std::string& path, int flags, mode_t mode) {
  if (const auto found = DirectoryRoots::of_process().find(path)) {
    const bool is_for_writing = (flags & O_ACCMODE) != O_RDONLY && (flags & O_PATH) == 0;
    if (found->root->is_of_another_user && is_for_writing)
      return open_for_writing_of_another(*found, flags, mode, path);
    return open_beneath(found->root->fd.get(), found->rest, flags, mode, path);
  }
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  return fd;
}

Status make_directory_at(const std::string& path, mode_t mode) {
  STOKER_ASSIGN_OR_RETURN(const PathAt place, resolve_parent(path));
  if (::mkdirat(place.at(), place.name.c_str(), mode) != 0)
    return Status::from_errno(errno, "mkdir " + path);
  const auto found = DirectoryRoots::of_process().find(path);
  if (!found || !found->root->is_of_another_user) return {};
  const auto made = open_beneath(place.at(), place.name, O_RDONLY | O_DIRECTORY, 0, path);
  struct stat info {};
  // Another one of that user can have taken its place.
  if (made.ok() && ::fstat(made->get(), &info) == 0 && info.st_uid == ::geteuid())
    give_to_owner(*found->root, made->get(), mode);
  return {};
}

int PathAt::at() const { return directory.valid() ? directory.get() : AT_FDCWD; }

Result<PathAt> resolve_parent(const std::string& path) {
  const auto found = DirectoryRoots::of_process().find(path);
  // The directory itself is an entry of the one above, which is no root.
  if (!found || found->rest.empty()) return PathAt{.directory = {}, .name = path};
  const std::string_view rest = found->rest;
  const size_t slash = rest.rfind('/');
  const std::string_view parent = rest.substr(0, slash == rest.npos ? 0 : slash);
  STOKER_ASSIGN_OR_RETURN(UniqueFd directory, open_beneath(found->root->fd.get(), parent,
                                                           O_PATH | O_DIRECTORY, 0, path));
  return PathAt{.directory = std::move(directory),
                .name = std::string(rest.substr(slash == rest.npos ? 0 : slash + 1))};
}

}  // namespace stoker
