// LstmPass: one layer of an LSTM over a whole sequence, in one or both directions, from zero states;
// what nn.LSTM computes, on the CPU, faster than LibTorch does.
//
// A thread takes a direction and a part of the batch through all steps by itself (lstm_worker.h), so
// threads meet once a pass. What a step does between its matrix products is one loop (lstm_cell.h),
// and the gates of a step stay in the cache from one product to the next. The input's gradient is
// only computed where it is wanted.
//
// Threads:  as many as LibTorch has. The result depends on their number in the last bits (what parts
//           of the batch give to a weight's gradient is added up), not on their timing.
// Shapes:   input [time, batch, features] F32, any strides; weights as nn.LSTM's; output
//           [time, batch, directions * hidden].
// Errors:   LibTorch's exceptions pass through. Backward can run once: it needs the memory of what
//           forward kept; a second one throws.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/lstm_weights.h"

namespace stoker::model {

// `directions`: forward, or forward and backward in time. With gradient where that is recorded.
//
// `length` I64 [batch], on the CPU: how many steps of each sequence are real; undefined: all. What
// comes after them is padding: its output is 0, and the backward direction begins at the last real
// step, as with PyTorch's pack_padded_sequence().
at::Tensor lstm_pass(const at::Tensor& input, const std::vector<LstmWeights>& directions,
                     const at::Tensor& length = {});

}  // namespace stoker::model
