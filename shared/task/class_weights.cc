#include "shared/task/class_weights.h"

#include <ATen/ops/tensor.h>

namespace stoker::task {

Result<ClassWeights> ClassWeights::of(const std::vector<double>& numbers, const std::string& key,
                                      uint64_t count, const std::string& what) {
  if (numbers.empty() || numbers.size() == count) return ClassWeights(numbers);
  return Status(StatusCode::kMismatch, key + " has " + std::to_string(numbers.size()) +
                                           " numbers, but the data has " + std::to_string(count) +
                                           ' ' + what + "; give one for each");
}

const at::Tensor& ClassWeights::matching(const at::Tensor& logits) const {
  const int64_t outputs = logits.size(-1);
  const bool is_made =
      kept_.defined() && kept_.device() == logits.device() && kept_.size(0) == outputs;
  if (!any() || is_made) return kept_;
  std::vector<double> numbers = numbers_;
  numbers.resize(static_cast<size_t>(outputs), 1.0);
  kept_ = at::tensor(numbers, at::TensorOptions().dtype(at::kFloat)).to(logits.device());
  return kept_;
}

}  // namespace stoker::task
