// TensorView and TensorSource: named tensors in memory, and in whatever file they are.
//
// Threads: one object per thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// In host memory that somebody else owns.
struct TensorView {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // C order, little endian, spec.bytes() long
};

using TensorViews = std::vector<TensorView>;

// Tensors that can be read one by one.
//
// Errors:  read(): kNotFound, kInvalidArgument (`out` is not exactly the tensor's bytes), kIoError,
//          kCorrupt.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<TensorSpec>& tensors() const = 0;         // in file order
  virtual const TensorSpec* find(const std::string& name) const = 0;  // nullptr: not there
  // What stands beside the tensors and is none, by name.
  virtual const std::vector<std::string>& others() const {
    static const std::vector<std::string> kNone;
    return kNone;
  }
  // The tensor in C order, little endian.
  virtual Status read(const std::string& name, std::span<std::byte> out) const = 0;
};

}  // namespace stoker::checkpoint
