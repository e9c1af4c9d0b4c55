// SampleReader: fills rows of batches with the samples of the plan, for one thread, and measures the
// time.
//
// Threads:   one; each worker thread has its own.
// Blocking:  as Dataset::read_batch().
// Ownership: the constructor's arguments must outlive this object.
// Errors:    a sample that cannot be read is reported through the ring and replaced by the plan's
//            replacement sample. fill() fails with the last error if kMaxReplacements consecutive
//            replacements cannot be read.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/stage_timer.h"
#include "shared/feed/batch_assembly.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/read_ahead.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feed {

class SampleReader {
 public:
  // The per-row accounting costs as much as copying a small sample, so rows are taken in groups: at
  // most kMaxRows, for about kGroupTime, so that no other thread waits long for them.
  static constexpr uint64_t kMaxRows = 32;
  static constexpr std::chrono::microseconds kGroupTime{20};

  // `maybe_ahead` receives the times of samples and is used to probe whether reads wait for
  // storage.
  SampleReader(ring::ShmRing& ring, const data::Dataset& dataset,
               const data::order::SamplePlan& plan, const BatchShapes& shapes,
               ReadAhead* maybe_ahead)
      : ring_(ring),
        dataset_(dataset),
        plan_(plan),
        shapes_(shapes),
        maybe_ahead_(maybe_ahead),
        outputs_(ring.layout().sample().size()) {}
  ~SampleReader() { count(); }
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  // The number of rows to take next, up to kMaxRows.
  uint64_t group_rows() const { return is_probing() ? 1 : group_rows_; }
  // Fills the rows with their samples, or with the first replacement samples that can be read.
  Status fill(RowTask& rows);

 private:
  bool is_probing() const {
    return probe_is_due_ && maybe_ahead_ != nullptr && maybe_ahead_->options().adapts;
  }
  Status read(const RowTask& rows);
  // Outputs of `count` rows, starting at index `first` of `rows`.
  std::span<const std::span<std::byte>> row_outputs(const RowTask& rows, uint64_t first,
                                                    uint64_t count);
  Status read_replacement(const RowTask& rows, uint64_t index, Status error);
  std::string reason_text(const Status& error, uint64_t sample) const;
  void count();

  ring::ShmRing& ring_;
  const data::Dataset& dataset_;
  const data::order::SamplePlan& plan_;
  const BatchShapes& shapes_;
  ReadAhead* const maybe_ahead_;
  std::vector<std::span<std::byte>> outputs_;
  std::array<data::order::PlannedSample, kMaxRows> planned_;
  std::array<data::SampleReadRequest, kMaxRows> samples_;
  uint64_t group_rows_ = 1;  // derived from the time of the last rows
  uint64_t fills_ = 0;
  bool probe_is_due_ = true;  // the next fill() measures whether reads wait for storage
  // Accumulated since the last add_read_time().
  ring::ReadTime spent_;
  std::chrono::nanoseconds measured_{0};        // part of spent_: time of the measured samples
  data::StageTimes stages_;                     // of the measured samples
  std::array<double, data::kStages> shares_{};  // stage fractions in the last measurements
};

}  // namespace stoker::feed
