#include "shared/model/lstm_layers.h"

#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>

#include "shared/model/lstm_pass.h"

namespace stoker::model {
namespace {

constexpr size_t kWeights = 4;  // of a direction of a layer: w_ih, w_hh, b_ih, b_hh

LstmStates run_on_cpu(torch::nn::LSTM& lstm, const at::Tensor& input) {
  const auto& options = lstm->options_base;
  const std::vector<at::Tensor> weights = lstm->all_weights();
  const size_t directions = options.bidirectional() ? 2 : 1;
  at::Tensor steps = input.to(at::kFloat).transpose(0, 1);
  for (size_t at = 0; at < weights.size();) {
    if (at > 0 && options.dropout() > 0 && lstm->is_training())
      steps = at::dropout(steps, options.dropout(), true);
    std::vector<LstmWeights> layer;
    for (size_t i = 0; i < directions; ++i, at += kWeights)
      layer.push_back({weights[at], weights[at + 1], weights[at + 2], weights[at + 3]});
    steps = lstm_pass(steps, layer);
  }
  const int64_t hidden = options.hidden_size();
  at::Tensor last = steps.select(0, -1).narrow(1, 0, hidden);
  if (options.bidirectional())
    last = at::cat({last, steps.select(0, 0).narrow(1, hidden, hidden)}, 1);
  return {steps.transpose(0, 1), last};
}

}  // namespace

LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input) {
  if (input.device().is_cpu()) return run_on_cpu(lstm, input);
  const auto [steps, last] = lstm->forward(input);
  const int64_t directions = lstm->options_base.bidirectional() ? 2 : 1;
  return {steps, std::get<0>(last).slice(0, -directions).transpose(0, 1).flatten(1)};
}

}  // namespace stoker::model
