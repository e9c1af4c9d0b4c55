// ClassWeights: task.class_weights or task.pos_weight as a tensor where the loss needs it.
//
// Threads: one at a time: the tensor is made at the first call, and kept, so that no later step waits
//          for a copy to the device.
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
  // `numbers` of the setting `key`; none: 1. kMismatch: there is not one for each of the data's
  // `count` classes (`what` they are: "classes").
  static Result<ClassWeights> of(const std::vector<double>& numbers, const std::string& key,
                                 uint64_t count, const std::string& what);

  bool any() const { return !numbers_.empty(); }
  const std::vector<double>& numbers() const { return numbers_; }  // of the data's classes; or none
  // F32 [logits.size(-1)], on the device of `logits`. A model may know more classes than the data
  // has: these count 1. Undefined where there are no weights.
  const at::Tensor& matching(const at::Tensor& logits) const;

 private:
  explicit ClassWeights(std::vector<double> numbers) : numbers_(std::move(numbers)) {}

  std::vector<double> numbers_;
  mutable at::Tensor kept_;
};

}  // namespace stoker::task
