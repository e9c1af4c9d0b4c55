// EventFile: a TensorBoard event file: scalars, texts, pictures and histograms per step.
//
// The few protobuf messages are encoded by hand (tensorboard_messages.h): no dependency on TensorFlow or
// protobuf.
//
// Threads:  one.
// Blocking: flush() for the disk; add_… never.
// Errors:   kNoSpace, kIoError, kPermission. What was added before a failed flush() is kept for the
//           next one, up to 1 MiB; what would go past that is dropped and counted.
// Format:   TFRecord frames around tensorflow.Event; docs/metrics.md.
// Crash:    a torn last record ends what TensorBoard reads of this file; the file of the next start
//           goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/metrics/tensor_summary.h"

namespace stoker::metrics {

inline constexpr size_t kMaxImageBytes = (size_t{1} << 20) - 4096;

class EventFile {
 public:
  // A new file in `directory` (made where it is missing), whose name sorts after those that are
  // there. `maybe_after_step`: the steps after this one come now, perhaps again (0: the run
  // starts); TensorBoard drops what earlier files say of them, so that each curve has one point a
  // step. Pass it for every file of a directory or for none: TensorBoard's page heeds it from the
  // second one on. Nothing: nothing is dropped. `files` and `clock` must outlive this object.
  static Result<std::unique_ptr<EventFile>> create(FileSystem& files, Clock& clock,
                                                   const std::string& directory,
                                                   std::optional<uint64_t> maybe_after_step);
  // Tries to flush.
  ~EventFile();

  // "train/loss" shows in TensorBoard as the curve "loss" in the group "train".
  void add_scalar(std::string_view tag, uint64_t step, double value);
  void add_text(std::string_view tag, uint64_t step, std::string_view text);  // shown as Markdown
  // `png`: the bytes of a PNG file in colour, at most kMaxImageBytes (else it is dropped and
  // counted).
  void add_image(std::string_view tag, uint64_t step, std::string_view png);
  void add_histogram(std::string_view tag, uint64_t step, const TensorSummary& summary);
  // `graph`: of encode_graph(); one a run.
  void add_graph(std::string_view graph);
  // `content`: of encode_hparams_start() or encode_hparams_end(), under its tag.
  void add_hparams(std::string_view tag, std::string_view content);
  Status flush();

  const std::string& path() const { return path_; }
  uint64_t dropped() const { return dropped_; }  // records that were never written

 private:
  EventFile(FileSystem& files, Clock& clock, std::string path)
      : files_(files), clock_(clock), path_(std::move(path)) {}
  void add_record(std::string_view event);
  void reserve_space(size_t bytes);
  double now() const;

  FileSystem& files_;
  Clock& clock_;
  const std::string path_;
  UniqueFd fd_;
  uint64_t written_ = 0;             // bytes of whole records
  bool has_partial_record_ = false;  // a part of a record stands after them
  std::string buffer_;
  uint64_t dropped_ = 0;
};

}  // namespace stoker::metrics
