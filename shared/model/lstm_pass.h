// lstm_pass(): runs one LSTM layer over complete sequences on the CPU, in one or both directions,
// from zero states. Computes the same as nn.LSTM, faster than LibTorch.
//
// Each thread runs one direction of a part of the batch through all time steps (lstm_worker.h), so
// threads synchronize once per pass. The elementwise part of a step is one loop (lstm_cell.h), and
// the gates of a step stay in the cache between its matrix products. The gradient of the input is
// computed only if it is required.
//
// Threads: uses all LibTorch threads. The last bits of the result depend on their number, because
//          the weight gradients of the batch parts are summed; they do not depend on timing.
// Shapes:  input [time, batch, features] F32, any strides; weights as in nn.LSTM; output [time,
//          batch, directions * hidden].
// Errors:  exceptions of LibTorch are propagated. The backward pass reuses the memory of the
//          forward pass, so a second backward pass throws.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/lstm_weights.h"

namespace stoker::model {

// `directions`: forward, or forward and backward in time. Records a gradient if gradients are
// enabled.
//
// `length` I64 [batch], on the CPU: number of valid time steps of each sequence; undefined means
// all. The rest is padding: its output is 0, and the backward direction starts at the last valid
// step, as with PyTorch's pack_padded_sequence().
at::Tensor lstm_pass(const at::Tensor& input, const std::vector<LstmWeights>& directions,
                     const at::Tensor& length = {});

}  // namespace stoker::model
