#include "daemon/app/resume_checkpoint.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/checkpoint/verify.h"
#include "shared/run/last_checkpoint.h"
#include "shared/run/lineage.h"

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

// Logs if the checkpoint that the run saved last is missing, or is another one. A newer one than
// recorded is normal: the run ended between its commit and the record. One that exists but was
// rejected is already logged.
void compare_with_record(const checkpoint::CheckpointStore& store,
                         const checkpoint::VerifiedCheckpoint& newest,
                         const run::RunLayout& layout) {
  const std::string path = layout.last_checkpoint_file();
  const auto last = run::read_last_checkpoint(path);
  const uint64_t step = newest.manifest().step;
  if (!last.ok())
    return log_warn("last checkpoint unknown",
                    {{"step", step}, {"error", last.status().to_string()}});
  if (!*last || (*last)->step < step) return;
  std::error_code error;
  const bool is_missing = !std::filesystem::exists(
      join_path(store.directory(), checkpoint::CheckpointStore::checkpoint_name((*last)->step)),
      error);
  if (is_missing) {
    log_warn("last checkpoint missing",
             {{"step", step},
              {"last_saved_step", (*last)->step},
              {"hint",
               "if the newer checkpoints were not removed on purpose, stop the run and "
               "restore them"}});
  } else if ((*last)->step == step && (*last)->manifest_sha256 != newest.manifest_sha256()) {
    log_warn("last checkpoint replaced",
             {{"step", step},
              {"path", newest.path()},
              {"hint", "it is not the one that this run has saved (" + path + ")"}});
  }
}

}  // namespace

Status check_checkpoints_exist(const checkpoint::CheckpointStore& store,
                               const run::RunLayout& layout) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  if (!entries.empty()) return {};
  const auto last = run::read_last_checkpoint(layout.last_checkpoint_file());
  if (last.ok() && !*last) return {};
  if (!last.ok() && last.status().code() != StatusCode::kCorrupt) return last.status();
  const bool is_missing = !std::filesystem::exists(store.directory());
  return Status(StatusCode::kCorrupt,
                store.directory() + (is_missing ? ": does not exist" : ": has no checkpoint") +
                    ", but this run has saved " +
                    (last.ok() ? "step " + std::to_string((*last)->step)
                               : "before (" + last.status().message() + ")") +
                    "; nothing was changed; mount or restore the directory, or start over with "
                    "--fresh");
}

Result<std::optional<checkpoint::VerifiedCheckpoint>> find_resume_checkpoint(
    const checkpoint::CheckpointStore& store, const run::RunLayout& layout,
    const std::string& resume, const LockWait& lock_wait) {
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
  if (newest.ok()) {
    compare_with_record(store, *newest, layout);
    return std::optional(*std::move(newest));
  }
  if (newest.status().code() == StatusCode::kNotFound) {
    STOKER_RETURN_IF_ERROR(check_checkpoints_exist(store, layout));
    return std::optional<checkpoint::VerifiedCheckpoint>();
  }
  if (newest.status().code() == StatusCode::kCorrupt) {
    return Status(
        StatusCode::kCorrupt,
        newest.status().message() +
            "; nothing was changed; restore one from a backup, or start over with --fresh");
  }
  return newest.status();
}

namespace {

void log_unrecorded(const std::string& path, const Status& status) {
  if (!status.ok()) log_warn("file write failed", {{"path", path}, {"error", status.to_string()}});
}

// A crash or a full disk may have prevented the lines of the last ones, and earlier releases wrote none.
Status complete_lineage(FileSystem& files, const std::vector<checkpoint::CheckpointEntry>& entries,
                        const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const run::Lineage lineage, run::read_lineage(path));
  std::vector<run::SavedCheckpoint> missing;
  std::optional<uint64_t> last_step;
  if (lineage.newest()) last_step = lineage.newest()->step;
  for (const auto& entry : entries) {
    if (lineage.newest() && entry.step <= lineage.newest()->step) continue;
    const auto manifest =
        read_file(join_path(entry.path, checkpoint::kManifestName), checkpoint::kMaxManifestBytes);
    if (!manifest.ok()) continue;
    const std::string sha256 = sha256_hex(*manifest);
    if (lineage.is_known(sha256)) continue;
    // Those of a branch that the run has left are archived.
    missing.push_back({.id = {entry.step, sha256}, .parent_step = last_step});
    last_step = entry.step;
  }
  return run::add_saved(files, path, missing);
}

}  // namespace

Status archive_later_checkpoints(FileSystem& files, const checkpoint::CheckpointStore& store,
                                 const run::RunLayout& layout, uint64_t step) {
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  log_unrecorded(layout.lineage_file(), complete_lineage(files, entries, layout.lineage_file()));
  bool moved = false;
  for (const auto& entry : entries) {
    if (entry.step <= step) continue;
    if (!moved) {
      const Status removed = files.remove_file(layout.last_checkpoint_file());
      if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
      if (removed.ok()) STOKER_RETURN_IF_ERROR(files.sync_directory(layout.root()));
    }
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

void record_start(FileSystem& files, const run::RunLayout& layout) {
  log_unrecorded(layout.lineage_file(), run::add_started(files, layout.lineage_file()));
}

bool is_checkpoint_of(const checkpoint::CheckpointStore& store,
                      const checkpoint::VerifiedCheckpoint& resumed) {
  const std::string own_path = join_path(
      store.directory(), checkpoint::CheckpointStore::checkpoint_name(resumed.manifest().step));
  std::error_code error;
  return std::filesystem::equivalent(own_path, resumed.path(), error);
}

void record_resumed_checkpoint(FileSystem& files, const checkpoint::CheckpointStore& store,
                               const run::RunLayout& layout,
                               const checkpoint::VerifiedCheckpoint& resumed) {
  const uint64_t step = resumed.manifest().step;
  log_unrecorded(layout.lineage_file(),
                 run::add_resumed(files, layout.lineage_file(), {step, resumed.manifest_sha256()}));
  if (!is_checkpoint_of(store, resumed)) return;
  const std::string path = layout.last_checkpoint_file();
  const run::LastCheckpoint last{.step = step, .manifest_sha256 = resumed.manifest_sha256()};
  const auto recorded = run::read_last_checkpoint(path);
  if (recorded.ok() && *recorded == last) return;
  log_unrecorded(path, run::write_last_checkpoint(files, path, last));
}

namespace {

// The lists of the other ranks of a group, which show-batch needs.
Status archive_sample_errors_of_ranks(FileSystem& files, const run::RunLayout& layout,
                                      const run::RunLayout& archive) {
  std::error_code error;
  bool has_folder = false;
  for (int rank = 1; std::filesystem::is_directory(layout.rank_dir(rank), error); ++rank) {
    const std::string list = run::RunLayout(layout.rank_dir(rank)).sample_errors_file();
    if (!std::filesystem::exists(list, error)) continue;
    const std::string folder = archive.rank_dir(rank);
    if (!std::exchange(has_folder, true))
      STOKER_RETURN_IF_ERROR(
          files.make_directory(std::filesystem::path(folder).parent_path().string()));
    STOKER_RETURN_IF_ERROR(files.make_directory(folder));
    STOKER_RETURN_IF_ERROR(
        files.rename_noreplace(list, run::RunLayout(folder).sample_errors_file()));
    STOKER_RETURN_IF_ERROR(files.sync_directory(folder));
  }
  return {};
}

}  // namespace

Status archive_run(FileSystem& files, const std::string& run_dir) {
  // The record follows the checkpoints. After a crash in between, a start exits with 65, and one
  // with --fresh moves the rest.
  const std::array<const char*, 16> kRunEntries{"checkpoints",
                                                "last_checkpoint.json",
                                                "lineage.jsonl",
                                                "batch_sizes.json",
                                                "data_schema.json",
                                                "eval",
                                                "metrics",
                                                "tensorboard",
                                                "config.yaml",
                                                "sample_errors.jsonl",
                                                "rollback.json",
                                                "exit_status.json",
                                                "restart_count.json",
                                                "dataset_versions.jsonl",
                                                "setting_changes.jsonl",
                                                "stream_history"};
  std::vector<std::string> there;
  for (const char* const name : kRunEntries)
    if (std::filesystem::exists(std::filesystem::symlink_status(join_path(run_dir, name))))
      there.emplace_back(name);
  if (there.empty()) return {};
  STOKER_ASSIGN_OR_RETURN(const std::string before, free_name(run_dir, "archive-", ""));
  STOKER_RETURN_IF_ERROR(files.make_directory(before));
  for (const std::string& name : there) {
    const std::string path = join_path(run_dir, name);
    const Status moved = files.rename_noreplace(path, join_path(before, name));
    if (moved.ok()) continue;
    (void)::rmdir(before.c_str());  // if it is still empty
    if (moved.code() != StatusCode::kBusy) return moved;
    return Status(StatusCode::kInvalidArgument,
                  path +
                      ": is a mount point; unmount it before a start with --fresh, or use another "
                      "run.dir");
  }
  STOKER_RETURN_IF_ERROR(
      archive_sample_errors_of_ranks(files, run::RunLayout(run_dir), run::RunLayout(before)));
  log_warn("new run started", {{"reason", "--fresh"}, {"archived_to", before}});
  STOKER_RETURN_IF_ERROR(files.sync_directory(before));
  return files.sync_directory(run_dir);
}

}  // namespace stoker::app
