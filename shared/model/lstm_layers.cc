#include "shared/model/lstm_layers.h"

#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "shared/model/lstm_pass.h"

namespace stoker::model {
namespace {

using Direction = LstmWeights;
constexpr size_t kWeightsPerLayerDirection = 4;  // per direction of a layer: w_ih, w_hh, b_ih, b_hh

std::vector<std::vector<Direction>> layers_of(const torch::nn::LSTM& lstm) {
  const std::vector<at::Tensor> weights = lstm->all_weights();
  const size_t directions = lstm->options_base.bidirectional() ? 2 : 1;
  std::vector<std::vector<Direction>> layers;
  for (size_t at = 0; at < weights.size();) {
    std::vector<Direction>& layer = layers.emplace_back();
    for (size_t i = 0; i < directions; ++i, at += kWeightsPerLayerDirection)
      layer.push_back({weights[at], weights[at + 1], weights[at + 2], weights[at + 3]});
  }
  return layers;
}

at::Tensor dropout_between_layers(const torch::nn::LSTM& lstm, const at::Tensor& steps) {
  const double part = lstm->options_base.dropout();
  return part > 0 && lstm->is_training() ? at::dropout(steps, part, true) : steps;
}

// `steps`: the states of all time steps, [batch, time, directions * hidden].
at::Tensor last_states(const torch::nn::LSTM& lstm, const at::Tensor& steps,
                       const at::Tensor& length) {
  const int64_t hidden = lstm->options_base.hidden_size();
  at::Tensor last = steps.select(1, -1);
  if (length.defined()) {
    const at::Tensor at = length.sub(1).clamp_min(0).view({-1, 1, 1});
    last = steps.gather(1, at.expand({-1, 1, steps.size(2)})).squeeze(1);
  }
  if (!lstm->options_base.bidirectional()) return last;
  return at::cat({last.narrow(1, 0, hidden), steps.select(1, 0).narrow(1, hidden, hidden)}, 1);
}

LstmStates run_on_cpu(const torch::nn::LSTM& lstm, const at::Tensor& input,
                      const at::Tensor& length) {
  at::Tensor steps = input.to(at::kFloat).transpose(0, 1);
  const auto layers = layers_of(lstm);
  for (size_t i = 0; i < layers.size(); ++i)
    steps = lstm_pass(i == 0 ? steps : dropout_between_layers(lstm, steps), layers[i], length);
  steps = steps.transpose(0, 1);
  return {steps, last_states(lstm, steps, length)};
}

// Reverses sequences within their own lengths; reversing twice restores them.
class SequenceReverser {
 public:
  SequenceReverser(const at::Tensor& length, int64_t time) {
    const at::Tensor step = at::arange(time, length.options()).unsqueeze(0),
                     lengths = length.unsqueeze(1);
    is_valid_ = step.lt(lengths);
    from_ = at::where(is_valid_, lengths - 1 - step, step);
  }
  at::Tensor reverse(const at::Tensor& steps) const {
    return steps.gather(1, from_.unsqueeze(2).expand({-1, -1, steps.size(2)}));
  }
  at::Tensor without_padding(const at::Tensor& steps) const {
    return steps.masked_fill(is_valid_.logical_not().unsqueeze(2), 0);
  }

 private:
  at::Tensor is_valid_;  // [batch, time]
  at::Tensor from_;      // [batch, time]: source index of each step
};

at::Tensor run_one_direction(const at::Tensor& steps, const Direction& weights) {
  const at::Tensor zeros =
      at::zeros({1, steps.size(0), weights.weight_hh.size(1)}, steps.options());
  return std::get<0>(
      at::lstm(steps, {zeros, zeros},
               {weights.weight_ih, weights.weight_hh, weights.bias_ih, weights.bias_hh},
               /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0, /*train=*/true,
               /*bidirectional=*/false, /*batch_first=*/true));
}

}  // namespace

LstmStates run_lstm_over_padded(torch::nn::LSTM& lstm, const at::Tensor& input,
                                const at::Tensor& length) {
  const SequenceReverser reverser(length, input.size(1));
  at::Tensor steps = input;
  const auto layers = layers_of(lstm);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) steps = dropout_between_layers(lstm, steps);
    at::Tensor states = run_one_direction(steps, layers[i][0]);
    if (layers[i].size() == 2)
      states = at::cat(
          {states, reverser.reverse(run_one_direction(reverser.reverse(steps), layers[i][1]))}, 2);
    steps = reverser.without_padding(states);
  }
  return {steps, last_states(lstm, steps, length)};
}

LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length) {
  const bool is_double = lstm->all_weights().front().scalar_type() == at::kDouble;
  if (input.device().is_cpu() && !is_double) return run_on_cpu(lstm, input, length);
  if (length.defined()) return run_lstm_over_padded(lstm, input, length);
  const auto [steps, last] = lstm->forward(input);
  const int64_t directions = lstm->options_base.bidirectional() ? 2 : 1;
  return {steps, std::get<0>(last).slice(0, -directions).transpose(0, 1).flatten(1)};
}

}  // namespace stoker::model
