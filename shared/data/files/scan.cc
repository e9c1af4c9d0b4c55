#include "shared/data/files/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::data::files {
namespace {

constexpr size_t kMaxDepth = 128;          // nested folders
constexpr uint64_t kProgressFiles = 4096;  // between two calls of progress

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

class FolderWalk {
 public:
  FolderWalk(const std::string& root, const PathGlob& glob, const ScanProgress& progress)
      : glob_(glob), progress_(progress) {
    found_.files = FileTable(root);
  }

  Result<FolderScan> run() {
    STOKER_RETURN_IF_ERROR(walk("").status());
    progress_(found_.files.size());
    log_ignored();
    return std::move(found_);
  }

 private:
  struct Entry {
    std::string name;
    bool folder = false;
    FileStamp stamp;
  };
  struct FolderId {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const FolderId&) const = default;
  };

  std::string full_path(const std::string& relative) const {
    return relative.empty() ? found_.files.root() : join_path(found_.files.root(), relative);
  }

  // Depth first, the names of each folder in order. Only one directory is open at a time. Returns
  // false if the folder leads back to one of its parents and was ignored.
  Result<bool> walk(const std::string& relative) {
    std::vector<Entry> entries;
    STOKER_ASSIGN_OR_RETURN(const bool loop, list(relative, entries));
    if (loop) return ++loops_, false;
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (const Entry& entry : entries) {
      const std::string path = relative.empty() ? entry.name : relative + '/' + entry.name;
      if (entry.folder) {
        STOKER_RETURN_IF_ERROR(walk_below(path));
      } else {
        found_.files.add(path, entry.stamp);
        if (found_.files.size() % kProgressFiles == 0) progress_(found_.files.size());
      }
    }
    above_.pop_back();
    return true;
  }

  Status walk_below(const std::string& path) {
    const size_t files_before = found_.files.size();
    STOKER_ASSIGN_OR_RETURN(const bool walked, walk(path));
    const bool below_root = above_.size() == 1;
    if (walked && below_root && found_.files.size() == files_before) found_.barren.push_back(path);
    return {};
  }

  // Pushes the folder onto above_ and lists its entries. Returns true without doing so if the
  // folder is already in above_.
  Result<bool> list(const std::string& relative, std::vector<Entry>& entries) {
    const std::string path = full_path(relative);
    Directory directory(::opendir(path.c_str()));
    if (!directory) return Status::from_errno(errno, "open folder " + path);
    const int fd = ::dirfd(directory.get());
    struct stat info {};
    if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + path);
    const FolderId id{.device = info.st_dev, .inode = info.st_ino};
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) return true;
    if (above_.size() >= kMaxDepth) {
      return Status(StatusCode::kInvalidArgument,
                    path + ": more than " + std::to_string(kMaxDepth) + " folders deep");
    }
    above_.push_back(id);
    for (errno = 0; const dirent* found = ::readdir(directory.get()); errno = 0) {
      const std::string name = found->d_name;
      if (name == "." || name == "..") continue;
      STOKER_RETURN_IF_ERROR(visit(fd, relative, name, entries));
    }
    if (errno != 0) return Status::from_errno(errno, "read folder " + path);
    return false;
  }

  Status visit(int fd, const std::string& relative, const std::string& name,
               std::vector<Entry>& entries) {
    const std::string path = relative.empty() ? name : relative + '/' + name;
    const bool wanted = glob_.matches(path);
    if (!wanted && !glob_.may_match_below(path)) return {};  // avoids the stat
    struct stat info {};
    if (::fstatat(fd, name.c_str(), &info, 0) != 0) {
      if (errno == ELOOP) return ++loops_, Status();
      if (errno == ENOENT) return ++dangling_, Status();  // a dangling symlink, or just removed
      return Status::from_errno(errno, "stat " + full_path(path));
    }
    if (S_ISDIR(info.st_mode)) {
      if (glob_.may_match_below(path))
        entries.push_back({.name = name, .folder = true, .stamp = {}});
      return {};
    }
    if (!wanted) return {};
    if (!S_ISREG(info.st_mode)) return ++irregular_, Status();
    if (::faccessat(fd, name.c_str(), R_OK, AT_EACCESS) != 0) {
      return Status::from_errno(errno, "read " + full_path(path));
    }
    entries.push_back({.name = name, .folder = false, .stamp = stamp_of(info)});
    return {};
  }

  void log_ignored() const {
    if (loops_ + dangling_ + irregular_ == 0) return;
    log_warn("directory entries ignored", {{"path", found_.files.root()},
                                           {"symlink_loops", loops_},
                                           {"dangling_symlinks", dangling_},
                                           {"non_regular_files", irregular_}});
  }

  const PathGlob& glob_;
  const ScanProgress& progress_;
  FolderScan found_;
  std::vector<FolderId> above_;  // from the root to the current folder
  uint64_t loops_ = 0;
  uint64_t dangling_ = 0;
  uint64_t irregular_ = 0;
};

}  // namespace

Result<FolderScan> scan_folder(const std::string& root, const PathGlob& glob,
                               const ScanProgress& progress) {
  return FolderWalk(root, glob, progress).run();
}

Status scan_file(const std::string& path, FileTable& files) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, path);
  if (!S_ISREG(info.st_mode))
    return Status(StatusCode::kInvalidArgument, path + ": not a regular file");
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0)
    return Status::from_errno(errno, "read " + path);
  files.add(path, stamp_of(info));
  return {};
}

Result<bool> is_folder(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, path);
  return S_ISDIR(info.st_mode);
}

}  // namespace stoker::data::files
