// GuardedDataset: a data set whose reads leave a trace for stokerd, and which refuses samples in
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

#include "daemon/feeder/quarantine_table.h"
#include "shared/dataset/dataset_decorator.h"

namespace stoker::feeder {

class GuardedDataset final : public dataset::DatasetDecorator {
 public:
  // `maybe_reader`: this process's number in the table; none (a thread of stokerd) leaves no trace.
  GuardedDataset(const dataset::Dataset& dataset, const QuarantineTable& table,
                 std::optional<uint32_t> maybe_reader)
      : DatasetDecorator(dataset), table_(table), maybe_reader_(maybe_reader) {}

  Status read(uint64_t sample, const dataset::DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override;
  dataset::RowsRead read_rows(std::span<const dataset::SampleRead> samples,
                              std::span<const std::span<std::byte>> rows) const override;

 private:
  Status read_marked(uint64_t sample, const dataset::DrawKey& draw,
                     std::span<const std::span<std::byte>> outputs) const;

  const QuarantineTable& table_;
  const std::optional<uint32_t> maybe_reader_;
  mutable std::shared_mutex reading_;  // exclusive: a suspect is being read
};

}  // namespace stoker::feeder
