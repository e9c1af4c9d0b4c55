// CurveHistory: the records of metrics/train.jsonl as columns of numbers, in bounded memory.
//
// refresh() reads what was appended since the last call. Above 2 * kMaxRows rows, adjacent rows are
// merged: values are averaged, loss_min and loss_max keep the extremes. The newest records are also
// stored as they are, for live pages.
//
// Threads:  one at a time.
// Blocking: reads the file.
// Errors:   none; lines that are not records are ignored. A file that was replaced, or truncated
//           (a rollback, a resume) and possibly written again, is read again from its start.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/resource_use.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::view {

// How long the steps of a record have trained, after the record before it. Without pauses, without the time between a crash and
// the restart, and not as long as records that are missing would have taken. `wall_seconds` between both: NaN if unknown.
double trained_seconds(uint64_t steps, double step_time_ms, double wall_seconds);

class CurveHistory {
 public:
  static constexpr size_t kMaxRows = 8192;
  static constexpr size_t kMaxRecent = 2048;
  enum Column : size_t {
    kStep,
    kSeconds,  // wall time since the first record
    kTrainedSeconds,
    kEpoch,
    kLoss,
    kLossMin,
    kLossMax,
    kLr,
    kGradNorm,
    kSamplesPerSecond,
    kStepMs,
    kWaitMs,
    kExchangeMs,
    kStallMs,
    kFirstResource,  // of kResourceFields
    kColumns = kFirstResource + kRecordedResources
  };
  static constexpr std::array<std::string_view, kFirstResource> kNames{"step",
                                                                       "seconds",
                                                                       "trained_seconds",
                                                                       "epoch",
                                                                       "loss",
                                                                       "loss_min",
                                                                       "loss_max",
                                                                       "lr",
                                                                       "grad_norm",
                                                                       "samples_per_second",
                                                                       "step_time_ms",
                                                                       "data_wait_ms",
                                                                       "exchange_ms",
                                                                       "stall_ms"};
  // The columns, then training metrics; those that are missing are NaN. In JSON, a resource is
  // "resource/cpu_cores", and one that has no value is left out.
  using Row = std::vector<double>;

  explicit CurveHistory(std::string path) : path_(std::move(path)) {}

  // Reads at most about `max_bytes`; the next call continues.
  void refresh(uint64_t max_bytes = UINT64_MAX);
  // {"started": "…", "records_per_row": 1, "columns": {"step": […], …, "metric/accuracy": […]}, "last": {"step": …, …}}
  // With at most `max_rows` rows (at least 2). `last`: the last record, which the last row can be the mean of.
  std::string to_json(size_t max_rows = SIZE_MAX) const;
  // All rows, merged as described above.
  std::vector<Row> rows() const;
  // Rows read since the call with the previous count; nullopt: unknown, read to_json() again. Sets
  // `count`, 0 at first.
  std::optional<std::vector<Row>> rows_since(uint64_t& count) const;
  std::string to_json(const std::vector<Row>& rows) const;  // the columns
  const std::optional<Row>& last() const { return last_; }

 private:
  void clear();
  bool is_continued(int fd) const;
  void add_line(std::string_view line);
  void add_metrics(const metrics::TrainMetrics& record, Row& row);
  void add(const Row& row);
  // One that a page can do without.
  static bool is_empty(const std::vector<Row>& rows, size_t column);
  static void merge_rows(std::vector<Row>& rows);
  std::string name_of(size_t column) const;

  const std::string path_;
  uint64_t offset_ = 0;
  ino_t inode_ = 0;
  // What was read behind the last complete line, unless it is longer than a line may be.
  std::string partial_;
  bool is_too_long_ = false;
  // To recognize a file that was truncated and has grown again.
  std::string last_line_;
  uint64_t last_line_offset_ = 0;
  std::vector<std::string> metric_names_;  // in the order in which they were read
  std::string started_;
  std::vector<Row> rows_;
  size_t records_per_row_ = 1;
  Row merged_;  // of the last `num_merged_` records, not in rows_ yet
  size_t num_merged_ = 0;
  std::optional<Row> last_;
  std::deque<Row> recent_;
  uint64_t count_ = 1;  // of records, over all times that the file was read; plus one
  uint64_t first_of_file_ = 1;
};

}  // namespace stoker::view
