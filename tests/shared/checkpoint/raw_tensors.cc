#include "tests/shared/checkpoint/raw_tensors.h"

#include <cstring>
#include <random>

namespace stoker::checkpoint {

std::string raw_tensors_of_length(uint64_t length, const std::string& rest) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + rest;
}

std::string raw_tensors(const std::string& header, const std::string& data) {
  return raw_tensors_of_length(header.size(), header + data);
}

OwnedTensor make_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                        unsigned seed) {
  OwnedTensor tensor{{name, dtype, shape}, {}};
  std::mt19937 random(seed);
  tensor.bytes.resize(tensor.spec.bytes());
  // Python reads these as numbers too: a bool is 0 or 1, and no float has all bits of its exponent set.
  for (std::byte& byte : tensor.bytes)
    byte = static_cast<std::byte>(random() % (dtype == DType::kBool ? 2 : 0x3c));
  return tensor;
}

std::vector<OwnedTensor> one_of_each_dtype() {
  std::vector<OwnedTensor> tensors;
  for (const char* name :
       {"U8", "U16", "I32", "I64", "F16", "BF16", "F32", "F64", "BOOL", "I8", "I16"})
    tensors.push_back(
        make_tensor(name, *parse_dtype(name), {3, 5}, static_cast<unsigned>(tensors.size()) + 1));
  tensors.push_back(make_tensor("scalar", DType::kF32, {}));
  tensors.push_back(make_tensor("empty", DType::kF32, {0, 4}));
  return tensors;
}

TensorViews views_of(const std::vector<OwnedTensor>& tensors) {
  TensorViews views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

}  // namespace stoker::checkpoint
