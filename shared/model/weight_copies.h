// WeightCopies: BF16 copies of F32 weights. Under autocast to BF16, linear() reads them instead of
// converting the weights in each step.
//
// A copy is created when linear() first needs it. It is converted again if the weight has changed by
// other means than a kernel that writes the copy, too: the optimizer's fused AdamW. Both are work on
// the device and can be captured, but a weight must not change between replays of a captured step
// except by that step.
//
// Threads:   one at a time; Scope applies to the thread that creates it.
// Ownership: shares the weights.
// Errors:    exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>

#include "shared/model/kernel_table.h"

namespace stoker::model {

class WeightCopies {
 public:
  // While it exists, linear() uses `maybe_copies` in this thread. Null: none.
  class Scope {
   public:
    explicit Scope(WeightCopies* maybe_copies);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WeightCopies* const previous_;
  };

  // The copy of `weight`, whose gradient becomes that of the weight. `weight` itself outside of a
  // Scope, without autocast to BF16, and unless it is an F32 parameter.
  static at::Tensor or_weight(const at::Tensor& weight);

  // Where the kernel that changes `weight` writes the new copy; null: there is none.
  Bf16* maybe_target(const at::Tensor& weight);
  // After that kernel: notes that weight and copy have changed together.
  void set_written(const at::Tensor& weight);

 private:
  struct Copy {
    at::Tensor weight, copy;
    int64_t version = 0;  // of the weight that was copied
  };
  const at::Tensor& copy_of(const at::Tensor& weight);

  std::map<const void*, Copy> copies_;  // by the identity of the weight
};

}  // namespace stoker::model
