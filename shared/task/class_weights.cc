#include "shared/task/class_weights.h"

#include <ATen/ops/tensor.h>

namespace stoker::task {

Result<ClassWeights> ClassWeights::of(const std::vector<double>& values, const std::string& key,
                                      uint64_t count, const std::string& what) {
  if (values.empty() || values.size() == count) return ClassWeights(values);
  return Status(StatusCode::kMismatch, key + " has " + std::to_string(values.size()) +
                                           " values, but the data has " + std::to_string(count) +
                                           ' ' + what + "; set one for each");
}

const at::Tensor& ClassWeights::matching(const at::Tensor& logits) const {
  const int64_t outputs = logits.size(-1);
  const bool is_cached =
      cached_.defined() && cached_.device() == logits.device() && cached_.size(0) == outputs;
  if (!has_weights() || is_cached) return cached_;
  std::vector<double> values = values_;
  values.resize(static_cast<size_t>(outputs), 1.0);
  cached_ = at::tensor(values, at::TensorOptions().dtype(at::kFloat)).to(logits.device());
  return cached_;
}

}  // namespace stoker::task
