// SumTree: sums tensors of the micro-batches of a step in a fixed tree, like a binary counter: those of
// micro-batches 0 to 7 as ((0+1)+(2+3)) + ((4+5)+(6+7)). If the number of micro-batches is a power of
// two, so is any aligned part of them with such a number, and the sums of the parts, added in the same
// way, have the same bytes as the sum of the whole: processes that share a step get the sum of one that
// computes it alone.
//
// Memory:  a copy of the tensors for each level; n micro-batches have log2(n) levels, rounded up.
// Threads: the trainer thread only.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace stoker::train {

class SumTree {
 public:
  // `count`: micro-batches per step.
  explicit SumTree(int64_t count) : count_(static_cast<uint64_t>(count)) {}

  // The number of sums that a micro-batch completes. It determines what add() does, so that
  // micro-batches of the same level can replay the same CUDA graph.
  static int level_of(int64_t micro_batch) {
    return std::countr_one(static_cast<uint64_t>(micro_batch));
  }
  // `values` of the next micro-batch, the same tensors in each call. After the last one they are the
  // sum; before, they are zero. Memory is allocated in the first step.
  void add(const std::vector<at::Tensor>& values, int level, bool is_last);

  uint64_t bytes() const;  // of the levels so far

 private:
  const uint64_t count_;
  std::vector<std::vector<at::Tensor>> levels_;  // [k]: the sum of 2^k micro-batches
};

}  // namespace stoker::train
