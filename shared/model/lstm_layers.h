// LstmLayers: what an nn.LSTM's weights compute, by the fastest way that the device has: lstm_pass() on
// the CPU, LibTorch's own (cuDNN) elsewhere.
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
LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input);

}  // namespace stoker::model
