// Safetensors files put together by hand, valid or not, and tensors to write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/tensor_view.h"

namespace stoker::checkpoint {

// Length, header, data; the header is taken as it is.
std::string raw_tensors(const std::string& header, const std::string& data);
// The same with a length of the caller's choice.
std::string raw_tensors_of_length(uint64_t length, const std::string& rest);

// A tensor that owns its bytes.
struct OwnedTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
  TensorView view() const { return {spec, bytes}; }
};

// Bytes that differ from tensor to tensor and from place to place.
OwnedTensor make_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                        unsigned seed = 1);
std::vector<OwnedTensor> one_of_each_dtype();
TensorViews views_of(const std::vector<OwnedTensor>& tensors);

}  // namespace stoker::checkpoint
