// CheckpointFixture: synthetic tensors of a training state of a given size: a model, and twice as
// much for AdamW.
//
// Threads: immutable after construction.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "shared/checkpoint/tensor_source.h"

namespace stoker::bench {

class CheckpointFixture {
 public:
  explicit CheckpointFixture(size_t bytes);  // approximate size, in tensors of at most 4 MiB
  CheckpointFixture(const CheckpointFixture&) = delete;
  CheckpointFixture& operator=(const CheckpointFixture&) = delete;

  const checkpoint::TensorViews& model() const { return model_; }
  const checkpoint::TensorViews& optim() const { return optim_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }  // of all tensors

 private:
  void add(checkpoint::TensorViews& views, const std::string& name, size_t from, size_t to);

  std::vector<std::byte> bytes_;
  checkpoint::TensorViews model_, optim_;
};

}  // namespace stoker::bench
