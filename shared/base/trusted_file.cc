#include "shared/base/trusted_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <filesystem>

namespace stoker {
namespace {

constexpr int kMaxLinks = 40;  // as in the kernel

// Walks along a path as the kernel does, one component at a time.
class PathWalk {
 public:
  explicit PathWalk(const std::string& path) : given_(path) {}
  Result<std::string> run();

 private:
  void prepend(const std::string& path);
  Status step(const std::string& name);
  Status follow_link(const std::string& link);
  Status check(const std::string& path, const struct stat& info) const;
  Status untrusted(const std::string& what) const {
    return Status(StatusCode::kPermission, given_ + ": " + what);
  }

  const std::string given_;
  std::deque<std::string> remaining_;
  std::string at_ = "/";    // without symlinks
  struct stat at_info_ {};  // of at_
  int num_links_ = 0;
};

bool is_writable_by_others(const struct stat& info) {
  return (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

void PathWalk::prepend(const std::string& path) {
  std::deque<std::string> parts;
  for (const auto& part : std::filesystem::path(path))
    if (!part.empty() && part != "." && part != "/") parts.push_back(part.string());
  remaining_.insert(remaining_.begin(), parts.begin(), parts.end());
}

Status PathWalk::check(const std::string& path, const struct stat& info) const {
  const bool is_directory = S_ISDIR(info.st_mode);
  constexpr const char* kWhy = ", and its code would run with your permissions; ";
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return untrusted((is_directory ? "is in directory " + path + ", which belongs" : "belongs") +
                     std::string(" to uid ") + std::to_string(info.st_uid) + kWhy + "chown it to " +
                     "yourself or root, or copy the file below a directory of yours");
  }
  if (!is_writable_by_others(info)) return {};
  if (is_directory && (info.st_mode & S_ISVTX) != 0) return {};
  const bool by_group = (info.st_mode & S_IWGRP) != 0;
  const bool by_any = (info.st_mode & S_IWOTH) != 0;
  return untrusted(std::string("is ") + (is_directory ? "in a directory that is " : "") +
                   "writable by " + (by_any ? "any user" : "its group") +
                   (is_directory ? ", " + path : "") + kWhy + "chmod " + (by_group ? "g" : "") +
                   (by_any ? "o" : "") + "-w " + path);
}

Status PathWalk::follow_link(const std::string& link) {
  if (is_writable_by_others(at_info_)) {
    return untrusted(link + " is a symlink, and any user can create one in " + at_ +
                     "; use the path of the file itself");
  }
  if (++num_links_ > kMaxLinks) return Status::from_errno(ELOOP, given_);
  std::error_code error;
  const auto target = std::filesystem::read_symlink(link, error);
  if (error) return Status::from_errno(error.value(), given_);
  prepend(target.string());
  if (!target.is_absolute()) return {};
  at_ = "/";
  if (::lstat("/", &at_info_) != 0) return Status::from_errno(errno, given_);
  return check(at_, at_info_);
}

Status PathWalk::step(const std::string& name) {
  if (!S_ISDIR(at_info_.st_mode)) return Status::from_errno(ENOTDIR, given_);
  const std::string next = name == ".." ? std::filesystem::path(at_).parent_path().string()
                                        : (std::filesystem::path(at_) / name).string();
  struct stat info {};
  if (::lstat(next.c_str(), &info) != 0) return Status::from_errno(errno, given_);
  if (S_ISLNK(info.st_mode)) return follow_link(next);
  at_ = next;
  at_info_ = info;
  if (S_ISDIR(info.st_mode) || S_ISREG(info.st_mode)) return check(at_, at_info_);
  return {};
}

Result<std::string> PathWalk::run() {
  if (given_.empty()) return Status::from_errno(ENOENT, "an empty path");
  std::error_code error;
  const auto absolute = std::filesystem::absolute(given_, error);
  if (error) return Status::from_errno(error.value(), given_);
  if (::lstat("/", &at_info_) != 0) return Status::from_errno(errno, given_);
  STOKER_RETURN_IF_ERROR(check(at_, at_info_));
  prepend(absolute.string());
  while (!remaining_.empty()) {
    const std::string name = remaining_.front();
    remaining_.pop_front();
    STOKER_RETURN_IF_ERROR(step(name));
  }
  if (!S_ISREG(at_info_.st_mode))
    return Status(StatusCode::kInvalidArgument, given_ + ": is not a file");
  return at_;
}

}  // namespace

Result<std::string> trusted_file(const std::string& path) { return PathWalk(path).run(); }

}  // namespace stoker
