// HostValues: the elements of a tensor as plain numbers, for computations without LibTorch.
//
// Threads:   values.
// Ownership: holds the tensor; a span is valid as long as this object.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

namespace stoker::task {

template <typename T>
class HostValues {
 public:
  // `tensor` must have the dtype that corresponds to T.
  explicit HostValues(const at::Tensor& tensor) : tensor_(tensor.to(at::kCPU).contiguous()) {}

  std::span<const T> span() const {
    return {tensor_.template const_data_ptr<T>(), static_cast<size_t>(tensor_.numel())};
  }

 private:
  const at::Tensor tensor_;
};

}  // namespace stoker::task
