// LstmLayers: what an nn.LSTM's weights compute, by the fastest way that the device has:
// lstm_pass() on the CPU, LibTorch's own (cuDNN) elsewhere.
//
// Sequences may be padded: `length` I64 [batch], on the input's device, says how many steps of each
// are real; undefined: all are. Padding is not looked at and its states are 0; the backward
// direction begins at each sequence's own last step. As PyTorch's pack_padded_sequence(), but a
// sequence may also have no step, and the device is never asked how long one is.
//
// Threads: as torch::nn::Module: one thread at a time.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/rnn.h>

namespace stoker::model {

struct LstmStates {
  at::Tensor steps;  // [batch, time, directions * hidden], of the last layer
  // [batch, directions * hidden]: the last state of each direction, which for the one backward in
  // time is that of the first step
  at::Tensor last;
};

// `input` [batch, time, features]; `lstm` has batch_first. Dropout between layers as the module has
// it, while it is training. In fp32, also under autocast on the CPU.
LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length = {});

// The way of other devices with sequences that are padded, wherever the input is: a direction of a
// layer after the other, what goes backward in time over sequences that were turned around.
LstmStates run_lstm_over_padded(torch::nn::LSTM& lstm, const at::Tensor& input,
                                const at::Tensor& length);

}  // namespace stoker::model
