// CrashTrackingDataset: a data set whose reads leave a trace for stokerd, and which refuses samples in
// quarantine.
//
// Threads:  as Dataset. A suspected sample is read while no other thread of this object reads.
// Owner:    dataset and table must outlive this object.
// Errors:   read(): kCorrupt for a sample in quarantine, so that the plan's stand-in takes its
//           place and the sample is listed as every other bad one; kOutOfMemory where a reader
//           process has no memory left for it; otherwise the data set's.
#pragma once

#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "shared/dataset/dataset_decorator.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::feed {

class CrashTrackingDataset final : public dataset::DatasetDecorator {
 public:
  // `maybe_worker`: this process's number in the table; none (a thread of stokerd) leaves no trace.
  CrashTrackingDataset(const dataset::Dataset& dataset, const QuarantineTable& table,
                       std::optional<uint32_t> maybe_worker)
      : DatasetDecorator(dataset), table_(table), maybe_worker_(maybe_worker) {}

  Status read(uint64_t sample, const dataset::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override;
  dataset::BatchReadResult read_batch(std::span<const dataset::SampleReadRequest> samples,
                                      std::span<const std::span<std::byte>> rows) const override;

 private:
  Status read_marked(uint64_t sample, const dataset::RandomKey& random_key,
                     std::span<const std::span<std::byte>> outputs) const;

  const QuarantineTable& table_;
  const std::optional<uint32_t> maybe_worker_;
  mutable std::shared_mutex reading_;  // exclusive: a suspect is being read
};

}  // namespace stoker::feed
