// RowReader: one thread's work: it fills rows of batches with their samples, and counts the time.
//
// Threads:  one; each reading thread has its own.
// Blocking: as Dataset::read().
// Owner:    all that it refers to must outlive it.
// Errors:   a sample that cannot be read is reported through the ring and replaced by the plan's
//           stand-in; fill() fails with the last error when kMaxStandIns in a row cannot be read.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"
#include "shared/dataset/stage_time.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/read_ahead.h"
#include "shared/feed/row.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxStandIns = 16;

class RowReader {
 public:
  // `maybe_ahead`: is told how long samples take, and asked what they wait for the disk.
  RowReader(ring::ShmRing& ring, const dataset::Dataset& dataset, const dataset::SamplePlan& plan,
            const BatchShapes& shapes, ReadAhead* maybe_ahead)
      : ring_(ring),
        dataset_(dataset),
        plan_(plan),
        shapes_(shapes),
        maybe_ahead_(maybe_ahead),
        outputs_(ring.layout().sample().size()) {}
  ~RowReader() { count(); }
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // Fills the row with its sample or the first stand-in that can be read.
  Status fill(Row& row);

 private:
  Status read(const Row& row);
  void count();

  ring::ShmRing& ring_;
  const dataset::Dataset& dataset_;
  const dataset::SamplePlan& plan_;
  const BatchShapes& shapes_;
  ReadAhead* const maybe_ahead_;
  std::vector<std::span<std::byte>> outputs_;
  uint64_t rows_ = 0;
  bool probe_is_due_ = true;  // whether reads wait for the disk
  // Since they were last added to the ring's.
  ring::ReadTime spent_;
  std::chrono::nanoseconds measured_{0};           // of spent_: of the samples that were measured
  dataset::StageTimes stages_;                     // of those
  std::array<double, dataset::kStages> shares_{};  // of the time of those measured last
};

}  // namespace stoker::feed
