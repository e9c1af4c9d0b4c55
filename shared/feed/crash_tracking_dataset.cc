#include "shared/feed/crash_tracking_dataset.h"

#include <mutex>
#include <new>

namespace stoker::feed {

Status CrashTrackingDataset::read(uint64_t sample, const dataset::RandomKey& random_key,
                                  std::span<const std::span<std::byte>> outputs) const {
  if (table_.quarantined(sample))
    return Status(StatusCode::kCorrupt,
                  "in quarantine: it killed its worker process again and again");
  if (!maybe_worker_) return inner().read(sample, random_key, outputs);
  try {
    return read_marked(sample, random_key, outputs);
  } catch (const std::bad_alloc&) {  // the process has a limit (sandbox.h), and goes on
    return Status(StatusCode::kOutOfMemory,
                  "needs more memory than feed.worker_memory_limit_mib gives its reader");
  }
}

dataset::BatchReadResult CrashTrackingDataset::read_batch(
    std::span<const dataset::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  if (table_.has_entries() || samples.size() > QuarantineTable::kSamplesAMark)
    return Dataset::read_batch(samples, rows);  // one by one
  if (!maybe_worker_) return inner().read_batch(samples, rows);
  try {
    const std::shared_lock with_others(reading_);
    QuarantineTable::Mark mark(table_, *maybe_worker_, samples.front().sample);
    for (const dataset::SampleReadRequest& each : samples.subspan(1)) mark.add(each.sample);
    return inner().read_batch(samples, rows);
  } catch (const std::bad_alloc&) {
    return Dataset::read_batch(samples, rows);  // which finds out whose fault it is
  }
}

Status CrashTrackingDataset::read_marked(uint64_t sample, const dataset::RandomKey& random_key,
                                         std::span<const std::span<std::byte>> outputs) const {
  if (!table_.suspected(sample)) {
    const std::shared_lock with_others(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_worker_, sample);
    return inner().read(sample, random_key, outputs);
  }
  Status status;
  {
    const std::unique_lock alone(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_worker_, sample);
    status = inner().read(sample, random_key, outputs);
  }
  table_.clear_suspect(sample);  // whatever came of it: it did not kill
  return status;
}

}  // namespace stoker::feed
