// diff_checkpoints: implements `stokerctl diff`, which reports how far the model weights moved
// between two checkpoints.
//
// Threads:  stateless functions; they access only their arguments and the file system.
// Blocking: reads and verifies both checkpoints.
// Errors:   kNotFound: no such checkpoint; kCorrupt: a checkpoint is corrupt; kIoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// Converts the elements of a tensor. `bytes` is little-endian, as in safetensors, and holds a
// multiple of the element size. 64-bit integers beyond 2^53 are rounded.
std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes);

struct TensorDiff {
  TensorSpec spec;
  uint64_t num_changed = 0;  // number of elements
  double rms_before = 0;     // root mean square of the elements
  double rms_change = 0;
  double largest_change = 0;   // of a single element
  uint64_t num_nonfinite = 0;  // number of elements that are NaN or infinite in either checkpoint

  double relative_change() const;  // rms_change / rms_before; infinity if rms_before is 0
};

struct CheckpointDiff {
  uint64_t from_step = 0;
  uint64_t to_step = 0;
  std::vector<TensorDiff> tensors;  // same shape and type in both; largest relative change first
  // Tensors in one checkpoint only, or with another shape or type: "fc.weight F32 [10, 64]".
  std::vector<std::string> only_before;
  std::vector<std::string> only_after;
};

// `from`, `to`: in the form that select_checkpoint() accepts.
Result<CheckpointDiff> diff_checkpoints(const run::RunLayout& layout, const std::string& from,
                                        const std::string& to);
// `rows`: maximum number of tensors; 0: all.
std::string render_diff(const CheckpointDiff& diff, size_t rows, const TextStyle& style);
// One JSON object on one line, without a newline.
std::string to_json(const CheckpointDiff& diff);

}  // namespace stoker::ctl
