#include "daemon/feeder/guarded_dataset.h"

#include <mutex>
#include <new>

namespace stoker::feeder {

Status GuardedDataset::read(uint64_t sample, const dataset::DrawKey& draw,
                            std::span<const std::span<std::byte>> outputs) const {
  if (table_.quarantined(sample))
    return Status(Code::kCorrupt, "in quarantine: it killed its reader process again and again");
  if (!maybe_reader_) return inner().read(sample, draw, outputs);
  try {
    return read_marked(sample, draw, outputs);
  } catch (const std::bad_alloc&) {  // the process has a limit (confinement.h), and goes on
    return Status(Code::kOutOfMemory,
                  "needs more memory than feed.worker_memory_limit_mib gives its reader");
  }
}

dataset::RowsRead GuardedDataset::read_rows(std::span<const dataset::SampleRead> samples,
                                            std::span<const std::span<std::byte>> rows) const {
  if (table_.any_set_apart() || samples.size() > QuarantineTable::kSamplesAMark)
    return Dataset::read_rows(samples, rows);  // one by one
  if (!maybe_reader_) return inner().read_rows(samples, rows);
  try {
    const std::shared_lock with_others(reading_);
    QuarantineTable::Mark mark(table_, *maybe_reader_, samples.front().sample);
    for (const dataset::SampleRead& each : samples.subspan(1)) mark.add(each.sample);
    return inner().read_rows(samples, rows);
  } catch (const std::bad_alloc&) {
    return Dataset::read_rows(samples, rows);  // which finds out whose fault it is
  }
}

Status GuardedDataset::read_marked(uint64_t sample, const dataset::DrawKey& draw,
                                   std::span<const std::span<std::byte>> outputs) const {
  if (!table_.suspected(sample)) {
    const std::shared_lock with_others(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_reader_, sample);
    return inner().read(sample, draw, outputs);
  }
  Status status;
  {
    const std::unique_lock alone(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_reader_, sample);
    status = inner().read(sample, draw, outputs);
  }
  table_.acquit(sample);  // whatever came of it: it did not kill
  return status;
}

}  // namespace stoker::feeder
