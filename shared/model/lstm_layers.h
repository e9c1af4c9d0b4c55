// run_lstm(): runs the layers of an nn.LSTM with the fastest implementation for the device:
// lstm_pass() on the CPU, LibTorch's (cuDNN) elsewhere and in double precision.
//
// Sequences can be padded: `length` I64 [batch], on the device of the input, is the number of valid
// time steps of each sequence; undefined means that all are valid. Padding is ignored and its
// states are 0; the backward direction starts at the last valid step of each sequence. This matches
// PyTorch's pack_padded_sequence(), except that a length of 0 is allowed and the lengths are never
// copied to the host.
//
// Threads: as torch::nn::Module: one thread at a time.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/rnn.h>

namespace stoker::model {

struct LstmStates {
  at::Tensor steps;  // [batch, time, directions * hidden], of the last layer
  // [batch, directions * hidden]: the final state of each direction; for the backward direction
  // that is the state at the first time step
  at::Tensor last;
};

// `input` [batch, time, features]; `lstm` must have batch_first. Applies the dropout of the module
// between layers in training mode. Under autocast to BF16, and on the CPU under any, computes in F32, unless
// the weights are F64.
LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length = {});

// The implementation for padded sequences, and for dropout between layers, on devices other than the CPU;
// works on any device. Runs each direction of each layer of padded sequences separately, the backward
// direction on reversed sequences. The dropout is not that of cuDNN, whose generator has a state that
// checkpoints lack and for whose seed the host waits for the device.
LstmStates run_lstm_by_layers(const torch::nn::LSTM& lstm, const at::Tensor& input,
                              const at::Tensor& length);

}  // namespace stoker::model
