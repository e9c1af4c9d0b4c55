// WeightCopies: BF16 copies of F32 weights. Under autocast to BF16, linear() reads them instead of
// converting the weights in each step.
//
// Only weights whose updates write the copy too have one. It is created in the first update by the
// optimizer's fused AdamW after linear() has read the weight. Replays of a captured step change the weight
// without its version in LibTorch, so all that changes such a weight on the device must write or
// convert the copy as well. A weight that was changed in another way is read itself.
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

  // Where the kernel that changes `weight` writes the new copy; null: there is none. The first call for a
  // weight decides that and must not be captured.
  Bf16* maybe_target(const at::Tensor& weight);
  // After that kernel: notes that weight and copy have changed together.
  void set_written(const at::Tensor& weight);
  // After other changes of `weight`, or of any: converts the copy, if there is one.
  void convert(const at::Tensor& weight);
  void convert_all();

 private:
  static constexpr int64_t kOutdated = -1;
  struct Copy {
    at::Tensor weight;            // undefined: linear() has not read it
    at::Tensor copy;              // undefined: there is none
    int64_t version = kOutdated;  // of the weight that was copied
    bool is_decided = false;      // whether there is a copy
  };
  // Null: `weight` has none that is up to date. Notes that linear() reads the weight.
  const at::Tensor* maybe_copy_of(const at::Tensor& weight);
  static void convert(Copy& entry);

  std::map<const void*, Copy> copies_;  // by the identity of the weight
};

}  // namespace stoker::model
