#include "shared/model/lstm_layers.h"

#include <optional>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

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

// cuDNN needs all weights in one buffer, and LibTorch warns in each call that it copies those of one layer there.
class IgnoredWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// One layer in the given directions.
at::Tensor run_layer(const at::Tensor& steps, const std::vector<Direction>& directions) {
  const auto count = static_cast<int64_t>(directions.size());
  const at::Tensor zeros =
      at::zeros({count, steps.size(0), directions.front().weight_hh.size(1)}, steps.options());
  std::vector<at::Tensor> weights;
  for (const Direction& direction : directions)
    weights.insert(weights.end(), {direction.weight_ih, direction.weight_hh, direction.bias_ih,
                                   direction.bias_hh});
  IgnoredWarnings ignored;
  const c10::WarningUtils::WarningHandlerGuard guard(&ignored);
  return std::get<0>(at::lstm(steps, {zeros, zeros}, weights, /*has_biases=*/true, /*num_layers=*/1,
                              /*dropout=*/0.0, /*train=*/true, /*bidirectional=*/count == 2,
                              /*batch_first=*/true));
}

at::Tensor run_padded_layer(const at::Tensor& steps, const std::vector<Direction>& directions,
                            const SequenceReverser& reverser) {
  at::Tensor states = run_layer(steps, {directions[0]});
  if (directions.size() == 2)
    states =
        at::cat({states, reverser.reverse(run_layer(reverser.reverse(steps), {directions[1]}))}, 2);
  return reverser.without_padding(states);
}

// Autocast runs cuDNN's LSTM in FP16, also if it is autocast to BF16, where nothing scales the gradients
// against underflow. It is off in this scope then.
class NoBf16Autocast {
 public:
  explicit NoBf16Autocast(c10::DeviceType device) {
    if (at::autocast::is_autocast_enabled(device) &&
        at::autocast::get_autocast_dtype(device) == at::kBFloat16)
      no_autocast_.emplace(c10::autocast_dispatch_keyset);
  }
  // The input of a layer with weights of type `dtype`.
  at::Tensor input(const at::Tensor& input, at::ScalarType dtype) const {
    return no_autocast_ ? input.to(dtype) : input;
  }

 private:
  std::optional<c10::impl::ExcludeDispatchKeyGuard> no_autocast_;
};

}  // namespace

LstmStates run_lstm_by_layers(const torch::nn::LSTM& lstm, const at::Tensor& input,
                              const at::Tensor& length) {
  const auto layers = layers_of(lstm);
  const NoBf16Autocast scope(input.device().type());
  at::Tensor steps = scope.input(input, layers.front().front().weight_ih.scalar_type());
  std::optional<SequenceReverser> maybe_reverser;
  if (length.defined()) maybe_reverser.emplace(length, input.size(1));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) steps = dropout_between_layers(lstm, steps);
    steps = maybe_reverser ? run_padded_layer(steps, layers[i], *maybe_reverser)
                           : run_layer(steps, layers[i]);
  }
  return {steps, last_states(lstm, steps, length)};
}

LstmStates run_lstm(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length) {
  const at::ScalarType dtype = lstm->all_weights().front().scalar_type();
  if (input.device().is_cpu() && dtype != at::kDouble) return run_on_cpu(lstm, input, length);
  const bool has_dropout = lstm->options_base.num_layers() > 1 &&
                           lstm->options_base.dropout() > 0 && lstm->is_training();
  if (length.defined() || has_dropout) return run_lstm_by_layers(lstm, input, length);
  const NoBf16Autocast scope(input.device().type());
  const auto [steps, last] = lstm->forward(scope.input(input, dtype));
  const int64_t directions = lstm->options_base.bidirectional() ? 2 : 1;
  return {steps, std::get<0>(last).slice(0, -directions).transpose(0, 1).flatten(1)};
}

}  // namespace stoker::model
