// LstmWeights: the weights of one direction of one layer, with the names and shapes of nn.LSTM.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

struct LstmWeights {
  at::Tensor weight_ih;  // [4 hidden, features]
  at::Tensor weight_hh;  // [4 hidden, hidden]
  at::Tensor bias_ih;    // [4 hidden]
  at::Tensor bias_hh;    // [4 hidden]
};

}  // namespace stoker::model
