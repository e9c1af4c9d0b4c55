#include "shared/run/run_access.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "shared/base/file.h"

namespace stoker::run {
namespace {

constexpr size_t kMaxEntryBytes = 1 << 20;  // of a user or group; some have thousands of members

// Calls getpwuid_r() or getgrgid_r() with a buffer that is large enough. Returns its error; `found` is null if there is no
// such entry.
template <typename Entry, typename Id>
int find_entry(int (*get)(Id, Entry*, char*, size_t, Entry**), Id id, Entry& entry,
               std::string& buffer, Entry*& found) {
  for (size_t bytes = 1024;; bytes *= 4) {
    buffer.resize(bytes);
    const int error = get(id, &entry, buffer.data(), buffer.size(), &found);
    if (error != ERANGE || bytes >= kMaxEntryBytes) return error;
  }
}

// Whether a group has the name of the user and no other member, as each user has one on Debian and Fedora.
// Also that of root: containers run as any user of it. Also one that this machine does not know, such as the fsGroup of a volume
// of Kubernetes: nobody here is a member by name.
bool is_private_group(gid_t group_id, uid_t user_id) {
  struct group group_entry {};
  struct passwd user_entry {};
  std::string group_buffer, user_buffer;
  group* found_group = nullptr;
  const int error = find_entry(&::getgrgid_r, group_id, group_entry, group_buffer, found_group);
  if (found_group == nullptr) return error == 0 || error == ENOENT || error == ESRCH;
  passwd* user = nullptr;
  (void)find_entry(&::getpwuid_r, user_id, user_entry, user_buffer, user);
  const std::string_view group_name = found_group->gr_name;
  const std::string_view user_name = user == nullptr ? "" : user->pw_name;
  if (group_id != 0 && group_name != user_name) return false;
  for (char** member = found_group->gr_mem; *member != nullptr; ++member)
    if (*member != user_name && *member != std::string_view("root")) return false;
  return true;
}

std::string mode_text(mode_t mode) {
  char digits[8];
  std::snprintf(digits, sizeof digits, "%04o", mode & 07777u);
  return digits;
}

// A file of others is not believed (daemon/app/daemon_app.cc), the command line is.
constexpr const char* kOrAllow = ", or trust them with --set run.allow_group_access=true";

Status check_directory(const std::string& path, RunOwner owner) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(path, O_PATH | O_DIRECTORY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  const auto writable = [&](const char* who, const char* option) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": is writable by " + who + " (mode " + mode_text(info.st_mode) +
                      "), who could replace files of the run; chmod " + option + " " + path +
                      (info.st_mode & S_IWOTH ? "" : kOrAllow));
  };
  if ((info.st_mode & S_IWOTH) != 0) return writable("any user", "o-w");
  if (owner == RunOwner::kAny) return {};
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return Status(StatusCode::kInvalidArgument,
                  path + ": belongs to uid " + std::to_string(info.st_uid) +
                      ", who could replace files of the run of uid " + std::to_string(::geteuid()) +
                      "; run as its owner, or chown it" + kOrAllow);
  if ((info.st_mode & S_IWGRP) != 0 && !is_private_group(info.st_gid, info.st_uid))
    return writable(("the members of group " + std::to_string(info.st_gid)).c_str(), "g-w");
  return {};
}

Status check_directories_above(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::canonical(path, error);
  if (error) return Status::from_errno(error.value(), "resolve " + path);
  while (at.has_relative_path()) {
    at = at.parent_path();
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0) return Status::from_errno(errno, "stat " + at.string());
    if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0)
      return Status(StatusCode::kInvalidArgument,
                    at.string() + ": is writable by any user (mode " + mode_text(info.st_mode) +
                        "), who could rename the run " + path + " below it; chmod +t " +
                        at.string() + ", or chmod o-w" + kOrAllow);
  }
  return {};
}

}  // namespace

Status check_writers(const RunLayout& layout, RunOwner owner) {
  STOKER_RETURN_IF_ERROR(check_directory(layout.root(), owner));
  if (owner == RunOwner::kTrusted) STOKER_RETURN_IF_ERROR(check_directories_above(layout.root()));
  for (const std::string& folder :
       {layout.checkpoints_dir(), layout.eval_dir(), layout.evaluation_requests_dir(),
        layout.metrics_dir(), layout.tensorboard_dir(), layout.logs_dir(), layout.index_dir()}) {
    const Status checked = check_directory(folder, RunOwner::kAny);
    if (!checked.ok() && checked.code() != StatusCode::kNotFound) return checked;
  }
  return {};
}

}  // namespace stoker::run
