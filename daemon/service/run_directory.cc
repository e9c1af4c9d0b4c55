#include "daemon/service/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace stoker::service {
namespace {

// What the user can do, if a restart cannot succeed without that. Empty: it can.
std::string remedy_of(const Status& status) {
  // EROFS is kPermission, too.
  if (status.message().ends_with(std::generic_category().message(EROFS)))
    return "; its file system is read-only: mount it writable, or choose another run.dir";
  switch (status.code()) {
    case StatusCode::kPermission:
      return "; change its owner, or choose another run.dir";
    case StatusCode::kAlreadyExists:
      return "; remove it, or choose another run.dir";
    case StatusCode::kNotFound:
      return "; create it, or choose another run.dir";
    default:
      return "";
  }
}

// Reports a system error as a configuration error if it has a remedy.
Status not_usable(const Status& status, const std::string& path) {
  const std::string remedy = remedy_of(status);
  return Status(remedy.empty() ? status.code() : StatusCode::kInvalidArgument,
                "run.dir " + path + " cannot be used by user " + std::to_string(::geteuid()) +
                    ": " + status.message() + remedy);
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const run::RunLayout& layout, Clock& clock,
                                        FileSystem& files, run::RunOwner owner) {
  if (Status made = make_directories(files, layout.root()); !made.ok())
    return not_usable(made, layout.root());
  STOKER_ASSIGN_OR_RETURN(DirectoryRoot root, DirectoryRoot::open(layout.root()));
  if (Status checked = run::check_writers(layout, owner); !checked.ok())
    return not_usable(checked, layout.root());
  auto lock = lock_file(layout.lock_file(), run::lock_text(clock));
  if (!lock.ok() && lock.status().code() == StatusCode::kBusy) {
    return Status(StatusCode::kBusy,
                  lock.status().message() +
                      ": another stokerd uses this directory; stop it, or choose another run.dir");
  }
  if (!lock.ok()) return not_usable(lock.status(), layout.root());

  RunDirectory directory(layout, clock, files, std::move(root), *std::move(lock));
  STOKER_RETURN_IF_ERROR(remove_temporary_files(files, layout.root()));
  STOKER_RETURN_IF_ERROR(directory.make_folders());
  STOKER_RETURN_IF_ERROR(directory.test_writing());
  directory.warnings_ = durability_warnings(inspect_file_system(layout.lock_file()));
  const Status removed = files.remove_file(layout.paused_file());
  if (!removed.ok() && removed.code() != StatusCode::kNotFound)
    return not_usable(removed, layout.root());
  if (const Status moved = run::set_aside_exit_status(files, layout); !moved.ok())
    return not_usable(moved, layout.root());
  return directory;
}

Status RunDirectory::make_folders() {
  // In a run that has saved before, a missing directory is an error that an empty one would hide,
  // and into which the original could not be moved back.
  std::error_code error;
  const bool is_lost = std::filesystem::exists(layout_.last_checkpoint_file(), error) &&
                       !std::filesystem::exists(layout_.checkpoints_dir(), error);
  for (const std::string& folder :
       {layout_.checkpoints_dir(), layout_.eval_dir(), layout_.metrics_dir(),
        layout_.tensorboard_dir(), layout_.logs_dir(), layout_.index_dir()}) {
    if (is_lost && folder == layout_.checkpoints_dir()) continue;
    if (Status made = make_directories(*files_, folder); !made.ok())
      return not_usable(made, layout_.root());
  }
  return {};
}

Status RunDirectory::publish_pause(const std::optional<run::PauseStatus>& maybe_pause) {
  if (maybe_pause.has_value() == has_pause_file_) return {};
  STOKER_RETURN_IF_ERROR(check_directory());
  has_pause_file_ = maybe_pause.has_value();  // tried once; not retried on a full disk
  if (!maybe_pause) {
    const Status removed = files_->remove_file(layout_.paused_file());
    return removed.code() == StatusCode::kNotFound ? Status() : removed;
  }
  // Only an indicator, not a record: it is not synced, so that the caller does not wait for the
  // disk.
  const std::string text = run::to_json(*maybe_pause);
  const std::string temporary = temporary_path(layout_.paused_file());
  {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files_->open(temporary, kNewFile));
    STOKER_RETURN_IF_ERROR(files_->write(fd.get(), std::as_bytes(std::span(text)), temporary));
  }
  return files_->rename(temporary, layout_.paused_file());
}

// Another run can have started at this path after the directory of this run was moved away.
Status RunDirectory::check_directory() const {
  struct stat lock_info {};
  struct stat path_info {};
  const bool is_same_file = ::fstat(lock_.fd.get(), &lock_info) == 0 &&
                            ::stat(layout_.lock_file().c_str(), &path_info) == 0 &&
                            lock_info.st_dev == path_info.st_dev &&
                            lock_info.st_ino == path_info.st_ino;
  if (is_same_file) return {};
  return Status(StatusCode::kNotFound,
                layout_.root() + ": is no longer the directory that this run was started in");
}

Status RunDirectory::save_exit_status(const run::ExitStatus& end, bool is_accepted) {
  STOKER_RETURN_IF_ERROR(check_directory());
  std::error_code error;
  if (is_accepted || !std::filesystem::exists(layout_.config_file(), error)) {
    STOKER_RETURN_IF_ERROR(run::write_exit_status(*files_, layout_, end));
    return run::accept_start(*files_, layout_);
  }
  STOKER_RETURN_IF_ERROR(run::put_back_exit_status(*files_, layout_));
  const run::LastStart start{.time = to_iso8601(clock_->wall()), .end = end};
  return write_file_atomically(*files_, layout_.last_start_file(), run::to_json(start));
}

// In checkpoints/, because later saves depend on that directory.
Status RunDirectory::test_writing() {
  std::error_code error;
  if (!std::filesystem::exists(layout_.checkpoints_dir(), error)) return {};  // see make_folders()
  const std::string folder = join_path(layout_.checkpoints_dir(), ".tmp-self-test");
  Status done = files_->remove_tree(folder);  // left by a start that was killed here
  if (done.ok()) done = files_->make_directory(folder);
  const std::string file = join_path(folder, "file");
  if (done.ok()) done = write_file_atomically(*files_, file, "stoker\n");
  if (done.ok()) done = files_->rename_noreplace(file, join_path(folder, "renamed"));
  if (done.ok()) done = files_->remove_tree(folder);
  return done.ok() ? done : not_usable(done, layout_.root());
}

namespace {

// Numbers from the kernel's linux/magic.h and the headers of the file systems.
constexpr std::array<std::pair<int64_t, std::string_view>, 9> kOverNetwork{{{0x6969, "NFS"},
                                                                            {0x517b, "SMB"},
                                                                            {0xff534d42, "CIFS"},
                                                                            {0xfe534d42, "SMB"},
                                                                            {0x01021997, "9P"},
                                                                            {0x65735546, "FUSE"},
                                                                            {0x0bd00bd0, "Lustre"},
                                                                            {0x00c36400, "Ceph"},
                                                                            {0x47504653, "GPFS"}}};
constexpr std::array<std::pair<int64_t, std::string_view>, 2> kInMemory{
    {{0x01021994, "tmpfs"}, {0x858458f6, "ramfs"}}};

template <size_t kSize>
std::string_view name_of(const std::array<std::pair<int64_t, std::string_view>, kSize>& names,
                         int64_t kind) {
  for (const auto& [number, name] : names)
    if (number == kind) return name;
  return {};
}

}  // namespace

FileSystemInfo inspect_file_system(const std::string& held_lock) {
  FileSystemInfo file_system;
  const auto locked = is_locked(held_lock);
  file_system.has_working_locks = locked.ok() && *locked;
  struct statfs info {};
  if (::statfs(held_lock.c_str(), &info) == 0)
    file_system.kind = static_cast<int64_t>(static_cast<uint32_t>(info.f_type));
  return file_system;
}

std::vector<std::string> durability_warnings(const FileSystemInfo& file_system) {
  std::vector<std::string> warnings;
  if (!file_system.has_working_locks)
    warnings.emplace_back(
        "locks (flock) do not work there: make sure that only one stokerd at a time uses it, and "
        "set "
        "checkpoint.min_age_seconds to longer than the duration of an evaluation");
  if (const auto name = name_of(kInMemory, file_system.kind); !name.empty())
    warnings.push_back("it is on " + std::string(name) +
                       ", in memory: a restart of the machine loses the run, and its checkpoints "
                       "take memory; set run.dir to a directory on a disk");
  if (const auto name = name_of(kOverNetwork, file_system.kind); !name.empty())
    warnings.push_back(
        "it is on " + std::string(name) +
        ": retention does not detect readers on other machines; set "
        "checkpoint.min_age_seconds to longer than their reads; fsync is as reliable as the "
        "server's");
  return warnings;
}

}  // namespace stoker::service
