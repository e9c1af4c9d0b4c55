// validate_training_mode: whether a TorchScript module does in training what training is for, and in evaluation
// what evaluation is for. One that was frozen, or traced, may do the same in both.
//
// Threads: pure function.
// Errors:  kMismatch: it is frozen, has no forward() of one tensor, or an operation that differs
//          between training and evaluation (dropout, batch_norm, an LSTM's dropout, …) was told
//          once and for all which of the two it is; names the operation, and says what to do.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "shared/base/status.h"

namespace stoker::model {

// What cannot be seen: a branch that tracing did not take, and scaled_dot_product_attention, whose
// dropout tracing in eval mode writes down as 0.
Status validate_training_mode(const torch::jit::Module& module);

}  // namespace stoker::model
