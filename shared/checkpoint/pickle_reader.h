// PickleReader: what a pickle of PyTorch's holds, without Python.
//
// A pickle is a program for a stack machine, and Python runs whatever it names. This machine knows
// the few instructions and names that tensors, and plain values beside them, need: those that
// torch.load(weights_only=True) takes for them. Everything else is refused by its name, and a name
// is a word here, never something that is called.
//
// Threads: functions of their arguments.
// Errors:  kCorrupt: an instruction or a name that is not known, a stack that does not fit, an
//          end inside an instruction, a tensor that lies beyond its storage; with the byte of the
//          pickle. Memory is in proportion to the pickle, and bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// Bytes beside the pickle, in a member of their own.
struct PickledStorage {
  std::string key;             // of the member "data/KEY"
  std::optional<DType> dtype;  // nullopt: bytes, and each tensor says what they are
  uint64_t elements = 0;       // bytes where there is no dtype
};

// A view of a storage.
struct PickledTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, none negative
  int64_t offset = 0;            // in elements
  size_t storage = 0;            // of Pickle::storages
};

struct PickleValue {
  enum class Type {
    kNothing,
    kBool,
    kInt,
    kText,
    kTuple,
    kList,
    kDict,
    kName,     // of a type or function
    kStorage,  // number: of Pickle::storages
    kTensor,   // number: of Pickle::tensors
    kOther     // a float, a very large number: nothing that a tensor needs
  };
  Type type = Type::kNothing;
  int64_t number = 0;
  std::string text;             // of a text or name
  std::vector<uint32_t> items;  // of Pickle::values; of a dict: key, value, key, value
};

// A value may be part of several others, and of itself.
struct Pickle {
  std::vector<PickleValue> values;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
  uint32_t root = 0;  // of values
};

Result<Pickle> read_pickle(std::span<const std::byte> bytes);

}  // namespace stoker::checkpoint
