// EventFile: writes a TensorBoard event file with scalars, texts, images and histograms per step.
//
// The few protobuf messages are encoded by hand (tensorboard_messages.h) to avoid a dependency on
// TensorFlow or protobuf.
//
// Threads:  one.
// Blocking: flush() blocks on the disk; add_…() only if 1 MiB of records waits for it, and not while
//           flush() fails.
// Errors:   kNoSpace, kIoError, kPermission. Records of a failed flush() are retained for the next
//           one, up to 1 MiB; further records are dropped and counted.
// Format:   TFRecord frames around tensorflow.Event; docs/metrics.md.
// Crash:    TensorBoard stops reading this file at a partial last record; the next start continues
//           in a new file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/metrics/tensor_summary.h"
#include "shared/metrics/tensorboard_messages.h"

namespace stoker::metrics {

inline constexpr size_t kMaxImageBytes = (size_t{1} << 20) - 4096;

class EventFile {
 public:
  // Creates a new file in `directory`, which is created if it does not exist. The file name sorts
  // after all existing ones. `maybe_after_step`: records of steps after this one follow, possibly
  // repeated (0: the run starts). TensorBoard then drops those steps from earlier files, so that
  // each curve has one point per step. Pass it for every file of a directory or for none:
  // TensorBoard's web page applies it from the second file on. If empty, nothing is dropped.
  // `files` and `clock` must outlive this object.
  static Result<std::unique_ptr<EventFile>> create(FileSystem& files, Clock& clock,
                                                   const std::string& directory,
                                                   std::optional<uint64_t> maybe_after_step);
  // Tries to flush.
  ~EventFile();

  // TensorBoard shows "train/loss" as the curve "loss" in the group "train".
  // `description`: of the curve, in Markdown; needed once per tag.
  void add_scalar(std::string_view tag, uint64_t step, double value,
                  std::string_view description = {});
  void add_text(std::string_view tag, uint64_t step, std::string_view text);  // shown as Markdown
  // `png`: the bytes of a color PNG file, up to kMaxImageBytes; a larger one is dropped and
  // counted.
  void add_image(std::string_view tag, uint64_t step, std::string_view png);
  void add_histogram(std::string_view tag, uint64_t step, const TensorSummary& summary);
  // See encode_pr_curve().
  void add_pr_curve(std::string_view tag, uint64_t step, std::span<const uint64_t> true_positives,
                    std::span<const uint64_t> false_positives);
  // `graph`: the result of encode_graph(); one per run.
  void add_graph(std::string_view graph);
  // `content`: the result of encode_hparams_start() or encode_hparams_end(), under its tag.
  void add_hparams(std::string_view tag, std::string_view content);
  // Charts with several curves; one per run.
  void add_layout(const std::vector<ChartCategory>& categories);
  Status flush();

  const std::string& path() const { return path_; }
  uint64_t dropped() const { return dropped_; }  // number of records that were not written

 private:
  EventFile(FileSystem& files, Clock& clock, std::string path)
      : files_(files), clock_(clock), path_(std::move(path)) {}
  void add_record(std::string_view event);
  double now() const;

  FileSystem& files_;
  Clock& clock_;
  const std::string path_;
  UniqueFd fd_;
  uint64_t written_ = 0;             // bytes of complete records
  bool has_partial_record_ = false;  // the file ends with a partial record
  bool has_failed_ = false;          // the last flush()
  std::string buffer_;
  uint64_t dropped_ = 0;
};

}  // namespace stoker::metrics
