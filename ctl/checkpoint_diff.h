// diff_checkpoints: `stokerctl diff`: how far the weights of a model have moved between two
// checkpoints.
//
// Threads:  functions of their arguments and the file system.
// Blocking: reads both checkpoints, and verifies them.
// Errors:   kNotFound: there is no such checkpoint; kCorrupt: one is damaged; kIoError.
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

// The elements of a tensor. `bytes`: little-endian, as safetensors has them, a whole number of elements. 64-bit integers past
// 2^53 are rounded.
std::vector<double> to_doubles(DType dtype, std::span<const std::byte> bytes);

struct TensorDiff {
  TensorSpec spec;
  uint64_t changed = 0;   // elements
  double rms_before = 0;  // root of the mean square of the elements
  double rms_change = 0;
  double largest_change = 0;  // of one element
  uint64_t not_finite = 0;    // elements that are no number, in either

  double relative_change() const;  // rms_change / rms_before; infinite where that is 0
};

struct CheckpointDiff {
  uint64_t from_step = 0;
  uint64_t to_step = 0;
  std::vector<TensorDiff> tensors;       // in both with the same shape and type, most changed first
  std::vector<std::string> only_before;  // "fc.weight F32 [10, 64]": there in one only, or of
  std::vector<std::string> only_after;   // another shape or type
};

// `from`, `to`: as select_checkpoint() takes them.
Result<CheckpointDiff> diff_checkpoints(const run::RunLayout& layout, const std::string& from,
                                        const std::string& to);
// `rows`: at most so many tensors; 0: all.
std::string render_diff(const CheckpointDiff& diff, size_t rows, const TextStyle& style);
// One JSON object on one line, without newline.
std::string to_json(const CheckpointDiff& diff);

}  // namespace stoker::ctl
