// ClassWeights: task.class_weights or task.pos_weight as a tensor on the device of the loss.
//
// Threads: one at a time. The tensor is created by the first call and cached, so that later steps
//          do not wait for a copy to the device.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"

namespace stoker::task {

class ClassWeights {
 public:
  ClassWeights() = default;
  // `numbers` are the values of the configuration key `key`; empty means no weights. kMismatch:
  // there is not one number per class; `count` is the number of classes in the data and `what`
  // their name in the message ("classes").
  static Result<ClassWeights> of(const std::vector<double>& values, const std::string& key,
                                 uint64_t count, const std::string& what);

  bool has_weights() const { return !values_.empty(); }
  const std::vector<double>& values() const {
    return values_;
  }  // one per class of the data, or empty
  // F32 [logits.size(-1)], on the device of `logits`. Outputs beyond the classes of the data have
  // weight 1. Undefined if there are no weights.
  const at::Tensor& matching(const at::Tensor& logits) const;

 private:
  explicit ClassWeights(std::vector<double> values) : values_(std::move(values)) {}

  std::vector<double> values_;
  mutable at::Tensor cached_;
};

}  // namespace stoker::task
