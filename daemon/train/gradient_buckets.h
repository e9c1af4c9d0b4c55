// GradientBuckets: sums the gradients of a step over the ranks while the backward pass computes the
// rest (distributed.reduction: allreduce). A bucket is a part of the memory of all gradients. Its sum
// starts when the gradients of all its parameters are complete, in the same order on all ranks: from
// the last parameter to the first, as the backward pass goes. If the optimizer sums the gradients of its
// shard only, so do the buckets.
//
// begin() has a callback in place of the sums, because a backward pass that is captured in a CUDA graph only
// records there when buckets are complete. The sums are not captured: start() starts them after each replay
// has been submitted.
//
// Threads:  the trainer thread, which also runs the backward pass on the CPU. That of a GPU runs on a
//           thread of LibTorch, for which the trainer thread waits.
// Blocking: finish() until the other ranks have the same gradients, at most for the group's timeout.
// Owner:    group and optimizer must outlive this object.
// Errors:   as ProcessGroup; kInternal: a gradient was computed twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/group/process_group.h"
#include "daemon/train/optimizer.h"
#include "shared/base/status.h"

namespace stoker::train {

class GradientBuckets {
 public:
  GradientBuckets(group::ProcessGroup& group, const Optimizer& optimizer, double bucket_mib);
  ~GradientBuckets();  // removes the hooks
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Called in order when the gradients of a bucket are complete.
  using OnComplete = std::function<void(size_t bucket)>;

  // Enclose the backward pass of the last micro-batch of this rank. end() completes the buckets of parameters
  // that the pass did not use.
  void begin(OnComplete on_complete);
  void end();
  // Starts the sum of a bucket. In order, and all of them.
  void start(size_t bucket);
  // Waits for the sums.
  Status finish(const std::stop_token& stop);

  size_t size() const { return buckets_.size(); }

 private:
  class Hook;
  struct Bucket {
    at::Tensor part;            // of the memory of all gradients
    std::vector<int64_t> ends;  // of the shards in `part`; empty: all ranks get the sum
    size_t parameters = 0;
    size_t missing = 0;  // of the current step
  };
  struct Member {
    at::Tensor parameter;
    size_t bucket = 0;
    bool is_complete = false;
  };

  // `maybe_ends`: of the shards in `flat`.
  void add_buckets(const at::Tensor& flat, const std::vector<int64_t>* maybe_ends,
                   const Optimizer& optimizer, int64_t max_bytes);
  void complete(size_t member);

  group::ProcessGroup& group_;
  std::vector<Bucket> buckets_;  // in the order of their sums
  std::vector<Member> members_;
  OnComplete on_complete_;
  bool is_active_ = false;
  size_t completed_ = 0;  // of the last pass
  size_t started_ = 0;    // since finish()
  Status status_;
};

}  // namespace stoker::train
