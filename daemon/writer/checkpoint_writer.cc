#include "daemon/writer/checkpoint_writer.h"

#include <cassert>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/run/last_checkpoint.h"
#include "shared/run/lineage.h"

namespace stoker::writer {
namespace {

constexpr ThreadActivity kWaitForSnapshot{.operation = "wait for snapshot", .is_waiting = true};
constexpr ThreadActivity kWriteCheckpoint{.operation = "write checkpoint"};

}  // namespace

CheckpointWriter::CheckpointWriter(checkpoint::CheckpointStore& store, WriterOptions options,
                                   Clock& clock)
    : store_(store),
      options_(std::move(options)),
      clock_(clock),
      snapshot_(options_.pinned_allocator) {
  assert(options_.delete_expired && "delete_expired is required");
}

// ---- Called by the trainer thread

void CheckpointWriter::reserve(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kIdle) snapshot_.reserve(bytes);
}

Snapshot* CheckpointWriter::try_begin() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kIdle) return nullptr;
  phase_ = Phase::kFilling;
  return &snapshot_;
}

void CheckpointWriter::submit(OnDone on_done, OnProgress on_progress) {
  {
    const std::lock_guard lock(mutex_);
    assert(phase_ == Phase::kFilling && "submit() without try_begin()");
    phase_ = Phase::kSubmitted;
    on_done_ = std::move(on_done);
    on_progress_ = std::move(on_progress);
    submitted_at_ = clock_.monotonic();
    stats_.in_flight = true;
  }
  changed_.notify_all();
}

void CheckpointWriter::increment_skipped() {
  const std::lock_guard lock(mutex_);
  ++stats_.skipped;
}

bool CheckpointWriter::wait_idle(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return phase_ == Phase::kIdle; });
}

WriterStats CheckpointWriter::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

bool CheckpointWriter::is_degraded() const {
  const std::lock_guard lock(mutex_);
  return stats_.degraded;
}

// ---- Writer thread

Status CheckpointWriter::run(std::stop_token stop) {
  while (true) {
    std::chrono::nanoseconds submitted_at{0};
    OnDone on_done;
    {
      std::unique_lock lock(mutex_);
      const ScopedActivity waiting(kWaitForSnapshot);
      const auto is_submitted = [this] { return phase_ == Phase::kSubmitted; };
      if (!changed_.wait(lock, stop, is_submitted)) return {};
      submitted_at = submitted_at_;
      on_done = std::exchange(on_done_, nullptr);
    }
    const ScopedActivity writing(kWriteCheckpoint);
    auto result = write(stop);
    if (options_.after_attempts) options_.after_attempts(result, stop);
    if (result.ok()) options_.delete_expired(false);
    record_result(result, 1e3 * seconds_between(submitted_at, clock_.monotonic()));
    // Reply to the requester before the trainer sees the writer idle and possibly ends the program.
    if (on_done) on_done(std::move(result));
    {
      const std::lock_guard lock(mutex_);
      phase_ = Phase::kIdle;
    }
    changed_.notify_all();
  }
}

Result<checkpoint::Manifest> CheckpointWriter::write(std::stop_token stop) {
  auto result = try_write(1, stop);
  for (size_t i = 0; !result.ok() && i < options_.delays.size(); ++i) {
    // Another process has saved this step, so a retry cannot succeed.
    if (result.status().code() == StatusCode::kAlreadyExists) break;
    if (result.status().code() == StatusCode::kCancelled) break;  // stopped, waiting for others
    if (result.status().code() == StatusCode::kPeerLost) break;   // and so is the run
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, options_.delays[i], [] { return false; });
    }
    result = try_write(static_cast<int>(i) + 2, stop);
  }
  return result;
}

Result<checkpoint::Manifest> CheckpointWriter::try_write(int attempt, const std::stop_token& stop) {
  Status may_commit = options_.before_commit ? options_.before_commit() : Status();
  if (may_commit.ok()) free_disk_space();
  const auto commit = [&] {
    checkpoint::CheckpointContent content = snapshot_.content();
    uint64_t written = 0;
    if (on_progress_) {
      content.on_bytes = [&, total = snapshot_.bytes()](uint64_t bytes) {
        on_progress_(written += bytes, total);
      };
    }
    return options_.commit ? options_.commit(content, stop) : store_.commit(content);
  };
  auto result = may_commit.ok() ? commit() : Result<checkpoint::Manifest>(std::move(may_commit));
  if (result.ok() && options_.after_commit) options_.after_commit(*result);
  if (result.ok()) return result;
  const std::string error = result.status().to_string();
  const bool is_repeated = attempt > 1 && error == stats().last_error;
  log_error("checkpoint write failed", {{"step", snapshot_.manifest().step},
                                        {"attempt", attempt},
                                        {"max_attempts", options_.delays.size() + 1},
                                        {"error", is_repeated ? "the same" : error}});
  const std::lock_guard lock(mutex_);
  ++stats_.failures;
  stats_.last_error = error;
  stats_.last_error_code = result.status().code();
  return result;
}

// Frees space before the commit if it can be predicted to fail with kNoSpace.
void CheckpointWriter::free_disk_space() {
  const Status free_space = store_.check_free_space(snapshot_.content());
  if (free_space.code() == StatusCode::kNoSpace) options_.delete_expired(true);
}

void CheckpointWriter::record_result(const Result<checkpoint::Manifest>& result, double ms) {
  {
    const std::lock_guard lock(mutex_);
    stats_.in_flight = false;
    stats_.degraded = !result.ok();
    if (result.ok()) {
      ++stats_.saved;
      stats_.last_step = result->step;
      stats_.last_ms = ms;
      stats_.last_bytes = snapshot_.bytes();
      stats_.last_error.clear();
      stats_.last_error_code = StatusCode::kOk;
    }
  }
  if (!result.ok()) {
    log_error("checkpoint abandoned", {{"step", snapshot_.manifest().step}});
    return;
  }
  log_info("checkpoint saved",
           {{"step", result->step},
            {"bytes", stats().last_bytes},
            {"duration_ms", ms},
            {"path", join_path(store_.directory(),
                               checkpoint::CheckpointStore::checkpoint_name(result->step))}});
}

void record_last_checkpoint(FileSystem& files, const run::RunLayout& layout,
                            const checkpoint::Manifest& committed) {
  const run::LastCheckpoint last{.step = committed.step,
                                 .manifest_sha256 = sha256_hex(checkpoint::to_json(committed))};
  const auto log_failure = [](const std::string& path, const Status& written) {
    if (!written.ok())
      log_warn("file write failed", {{"path", path}, {"error", written.to_string()}});
  };
  const run::SavedCheckpoint saved{
      .id = {last.step, last.manifest_sha256},
      .parent_step =
          checkpoint::CheckpointStore::parse_checkpoint_name(committed.parent_checkpoint)};
  log_failure(layout.lineage_file(), run::add_saved(files, layout.lineage_file(), {saved}));
  log_failure(layout.last_checkpoint_file(),
              run::write_last_checkpoint(files, layout.last_checkpoint_file(), last));
}

}  // namespace stoker::writer
