// TensorView and TensorSource: named tensors in memory and in files.
//
// Threads:  one object per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// Limits of one file, which bound the memory that a few of its bytes can take.
inline constexpr size_t kMaxTensors = 200'000;  // the largest models have fewer in all their files
inline constexpr size_t kMaxDimensions = 64;    // PyTorch's limit

// Host memory, not owned.
struct TensorView {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // C order, little-endian, spec.bytes() long
};

using TensorViews = std::vector<TensorView>;

// A collection of tensors that can be read one by one.
//
// Errors:   read(): kNotFound, kInvalidArgument (the size of `out` differs from the tensor's),
//           kIoError, kCorrupt.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<TensorSpec>& tensors() const = 0;         // in file order
  virtual const TensorSpec* find(const std::string& name) const = 0;  // nullptr: not found
  // Names of the entries that are not tensors.
  virtual const std::vector<std::string>& non_tensor_keys() const {
    static const std::vector<std::string> kNone;
    return kNone;
  }
  // Reads the tensor in C order, little-endian.
  virtual Status read(const std::string& name, std::span<std::byte> out) const = 0;
};

// One whose tensors can also be read in parts.
class TensorRangeSource : public TensorSource {
 public:
  // A range of the tensor's bytes that starts at `offset`; it must be inside the tensor.
  virtual Status read_part(const std::string& name, uint64_t offset,
                           std::span<std::byte> out) const = 0;
};

}  // namespace stoker::checkpoint
