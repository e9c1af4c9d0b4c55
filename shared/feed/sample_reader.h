// SampleReader: one thread's work: it fills rows of batches with their samples, and counts the time.
//
// Threads:  one; each reading thread has its own.
// Blocking: as Dataset::read_batch().
// Owner:    all that it refers to must outlive it.
// Errors:   a sample that cannot be read is reported through the ring and replaced by the plan's
//           stand-in; fill() fails with the last error when kMaxReplacements in a row cannot be read.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"
#include "shared/dataset/stage_timer.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/read_ahead.h"
#include "shared/feed/row_task.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxReplacements = 16;

class SampleReader {
 public:
  // What is counted for each row costs as much as copying a small one. So rows are taken together,
  // as many as are read in so short a time that no thread waits long for another's.
  static constexpr std::chrono::microseconds kWorthTaking{20};
  static constexpr uint64_t kMaxRows = 32;

  // `maybe_ahead`: is told how long samples take, and asked what they wait for the disk.
  SampleReader(ring::ShmRing& ring, const dataset::Dataset& dataset,
               const dataset::SamplePlan& plan, const BatchShapes& shapes, ReadAhead* maybe_ahead)
      : ring_(ring),
        dataset_(dataset),
        plan_(plan),
        shapes_(shapes),
        maybe_ahead_(maybe_ahead),
        outputs_(ring.layout().sample().size()) {}
  ~SampleReader() { count(); }
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  // How many rows to take next, at most kMaxRows.
  uint64_t rows_at_once() const { return is_to_probe() ? 1 : rows_at_once_; }
  // Fills the rows with their samples or the first stand-ins that can be read.
  Status fill(RowTask& rows);

 private:
  bool is_to_probe() const {
    return probe_is_due_ && maybe_ahead_ != nullptr && maybe_ahead_->options().adapts;
  }
  Status read(const RowTask& rows);
  // The rows from the `first`-th of these on.
  std::span<const std::span<std::byte>> row_outputs(const RowTask& rows, uint64_t first,
                                                    uint64_t count);
  Status read_replacement(const RowTask& rows, uint64_t which, Status error);
  std::string reason_text(const Status& error, uint64_t sample) const;
  void count();

  ring::ShmRing& ring_;
  const dataset::Dataset& dataset_;
  const dataset::SamplePlan& plan_;
  const BatchShapes& shapes_;
  ReadAhead* const maybe_ahead_;
  std::vector<std::span<std::byte>> outputs_;
  std::array<dataset::PlannedSample, kMaxRows> planned_;
  std::array<dataset::SampleReadRequest, kMaxRows> samples_;
  uint64_t rows_at_once_ = 1;  // as the time says that the last ones took
  uint64_t fills_ = 0;
  bool probe_is_due_ = true;  // whether reads wait for the disk
  // Since they were last added to the ring's.
  ring::ReadTime spent_;
  std::chrono::nanoseconds measured_{0};           // of spent_: of the samples that were measured
  dataset::StageTimes stages_;                     // of those
  std::array<double, dataset::kStages> shares_{};  // of the time of those measured last
};

}  // namespace stoker::feed
