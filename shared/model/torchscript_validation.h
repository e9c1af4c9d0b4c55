// validate_training_mode: checks that a TorchScript module distinguishes training from evaluation
// mode. A frozen or traced module can behave the same in both.
//
// Threads: pure function.
// Errors:  kMismatch: the module is frozen, has no forward() of one tensor, or contains a
//          mode-dependent operator (dropout, batch_norm, dropout of an LSTM, …) whose mode is a
//          constant; names the operator and a suggested fix.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "shared/base/status.h"

namespace stoker::model {

// Not detected: a branch that tracing did not take, and scaled_dot_product_attention, which tracing
// in eval mode records with dropout 0.
Status validate_training_mode(const torch::jit::Module& module);

}  // namespace stoker::model
