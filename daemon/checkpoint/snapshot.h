// Snapshot: a copy of the training state in host memory, made at a step boundary and written while training goes on.
//
// The memory is reused from one snapshot to the next: after the first of a run nothing is allocated.
//
// Threads:  filled by the trainer, then read by the writer; CheckpointWriter hands it over.
// Blocking: never.
// Owner:    the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/store.h"

namespace stoker::writer {

enum class Part { kModel, kOptim, kState };  // the file that a tensor goes to

class Snapshot {
 public:
  // Forgets the tensors before; their memory is kept for the next ones. The manifest stays as it is.
  void begin();
  // Room for one tensor, to be filled by the caller; valid until the next begin().
  std::span<std::byte> add(Part part, TensorSpec spec);
  checkpoint::Manifest& manifest() { return manifest_; }

  // Views into this object.
  checkpoint::CheckpointContent content() const;
  uint64_t bytes() const;  // of all tensors

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const;
  };
  struct Buffer {
    std::unique_ptr<std::byte, FreeAligned> memory;
    size_t capacity = 0;
  };
  struct Entry {
    Part part;
    TensorSpec spec;
  };

  checkpoint::Manifest manifest_;
  std::vector<Entry> entries_;
  std::vector<Buffer> buffers_;  // buffers_[i] holds entries_[i]; there may be more from before
};

}  // namespace stoker::writer
