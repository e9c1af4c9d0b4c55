#include "daemon/app/resume_checkpoint.h"

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "shared/base/log.h"

namespace stoker::app {
namespace {

Result<std::string> free_name(const std::string& directory, const std::string& prefix,
                              const std::string& suffix) {
  for (int n = 1; n < 100000; ++n) {
    std::string path = join_path(directory, prefix + std::to_string(n) + suffix);
    if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return path;
  }
  return Status(StatusCode::kIoError, directory + ": holds too many archived runs; remove some");
}

// One wait for all locks of a start.
class LockWaiter {
 public:
  explicit LockWaiter(const LockWait& options) : options_(options) {}

  // `locked`: kBusy with path and holder. Ok: try again.
  Status wait(const Status& locked) {
    const auto now = options_.clock.monotonic();
    if (!maybe_since_) {
      maybe_since_ = now;
      log_warn("checkpoint locked", {{"reason", locked.message()},
                                     {"timeout_seconds", options_.timeout.count()},
                                     {"hint", "use shared locks (flock --shared)"}});
    }
    if (now - *maybe_since_ < options_.timeout) return options_.pause(locked.message());
    return Status(StatusCode::kBusy, locked.message() + " for " +
                                         std::to_string(options_.timeout.count()) +
                                         " s; end that process, or start again later");
  }
  void log_end() const {
    if (maybe_since_)
      log_info("checkpoint lock released",
               {{"duration_seconds", seconds_between(*maybe_since_, options_.clock.monotonic())}});
  }

 private:
  const LockWait& options_;
  std::optional<std::chrono::nanoseconds> maybe_since_;
};

}  // namespace

Result<std::optional<checkpoint::VerifiedCheckpoint>> find_resume_checkpoint(
    const checkpoint::CheckpointStore& store, const std::string& resume,
    const LockWait& lock_wait) {
  LockWaiter waiter(lock_wait);
  const auto on_locked = [&waiter](const Status& locked) { return waiter.wait(locked); };
  if (!resume.empty()) {
    auto named = checkpoint::CheckpointStore::open_verified(resume);
    while (named.status().code() == StatusCode::kBusy) {
      STOKER_RETURN_IF_ERROR(on_locked(named.status()));
      named = checkpoint::CheckpointStore::open_verified(resume);
    }
    if (!named.ok()) return named.status();
    waiter.log_end();
    return std::optional(*std::move(named));
  }
  auto newest = store.open_newest(
      [](const checkpoint::CheckpointEntry& entry, const Status& why) {
        log_error("checkpoint rejected",
                  {{"step", entry.step}, {"path", entry.path}, {"error", why.to_string()}});
      },
      on_locked);
  if (newest.ok()) waiter.log_end();
  if (newest.ok()) return std::optional(*std::move(newest));
  if (newest.status().code() == StatusCode::kNotFound)
    return std::optional<checkpoint::VerifiedCheckpoint>();
  if (newest.status().code() == StatusCode::kCorrupt) {
    return Status(
        StatusCode::kCorrupt,
        newest.status().message() +
            "; nothing was changed; restore one from a backup, or start over with --fresh");
  }
  return newest.status();
}

Status archive_later_checkpoints(FileSystem& files, const checkpoint::CheckpointStore& store,
                                 uint64_t step) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  bool moved = false;
  for (const auto& entry : entries) {
    if (entry.step <= step) continue;
    STOKER_ASSIGN_OR_RETURN(
        const std::string to,
        free_name(store.directory(), "archived.",
                  "." + checkpoint::CheckpointStore::checkpoint_name(entry.step)));
    STOKER_RETURN_IF_ERROR(files.rename_noreplace(entry.path, to));
    moved = true;
    log_warn("checkpoint archived", {{"step", entry.step},
                                     {"archived_to", to},
                                     {"reason", "the run resumes from an earlier one"}});
  }
  return moved ? files.sync_directory(store.directory()) : Status();
}

Status archive_run(FileSystem& files, const std::string& run_dir) {
  const std::array<const char*, 10> kRunEntries{"checkpoints",
                                                "eval",
                                                "metrics",
                                                "tensorboard",
                                                "config.yaml",
                                                "sample_errors.jsonl",
                                                "rollback.json",
                                                "exit_status.json",
                                                "restart_count.json",
                                                "dataset_versions.jsonl"};
  std::vector<std::string> there;
  for (const char* const name : kRunEntries)
    if (std::filesystem::exists(std::filesystem::symlink_status(join_path(run_dir, name))))
      there.emplace_back(name);
  if (there.empty()) return {};
  STOKER_ASSIGN_OR_RETURN(const std::string before, free_name(run_dir, "archive-", ""));
  STOKER_RETURN_IF_ERROR(files.make_directory(before));
  for (const std::string& name : there) {
    STOKER_RETURN_IF_ERROR(
        files.rename_noreplace(join_path(run_dir, name), join_path(before, name)));
  }
  log_warn("new run started", {{"reason", "--fresh"}, {"archived_to", before}});
  STOKER_RETURN_IF_ERROR(files.sync_directory(before));
  return files.sync_directory(run_dir);
}

}  // namespace stoker::app
