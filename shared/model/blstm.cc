// blstm: a bidirectional LSTM over sequences of vectors or tokens, and a linear layer over the last
// states, over the mean of all states, or over the state of each time step.
//
// Padding has no effect: the backward direction starts at the last valid step of each sequence,
// where the forward direction ends. This matches PyTorch's nn.LSTM with pack_padded_sequence().
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/lstm_layers.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

// The sequences of the data.
struct SequenceInput {
  int64_t features = 0;  // size of the vector of a time step
  bool are_tokens = false;
};

class Blstm : public Model {
 public:
  Blstm(const config::BlstmConfig& config, const SequenceInput& steps, int64_t outputs)
      : config_(config) {
    if (steps.are_tokens)
      tok_ = register_module("tok", torch::nn::Embedding(config.vocab_size, steps.features));
    lstm_ = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(steps.features, config.hidden_size)
                                    .num_layers(config.num_layers)
                                    .dropout(dropout_between_layers(config))
                                    .batch_first(true)
                                    .bidirectional(true)));
    fc_ = register_module("fc", torch::nn::Linear(2 * config.hidden_size, outputs));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(input, {}); }
  at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& length) override {
    return run(input, length);
  }

  int64_t vocab() const override { return tok_ ? config_.vocab_size : 0; }

 private:
  // LibTorch warns about dropout in an LSTM with one layer.
  static double dropout_between_layers(const config::BlstmConfig& config) {
    return config.num_layers > 1 ? config.dropout : 0.0;
  }

  at::Tensor run(const at::Tensor& input, const at::Tensor& length) {
    const LstmStates states = run_lstm(lstm_, tok_ ? drop(embedded(input)) : input, length);
    if (config_.pooling == config::Pooling::kNone) return fc_(drop(states.steps));
    return fc_(drop(config_.pooling == config::Pooling::kMean
                        ? mean_over_steps(states.steps, length)
                        : states.last));
  }

  // LibTorch's own error would not say which index is out of range. The assertion does not
  // synchronize with the device.
  at::Tensor embedded(const at::Tensor& tokens) {
    at::_assert_async(tokens.ge(0).logical_and(tokens.lt(config_.vocab_size)).all(),
                      "a token is not from 0 to below model.vocab_size (" +
                          std::to_string(config_.vocab_size) + ")");
    return tok_(tokens);
  }

  // Mean over the valid steps; the states of padding are 0.
  static at::Tensor mean_over_steps(const at::Tensor& steps, const at::Tensor& length) {
    if (!length.defined()) return steps.mean(1);
    return steps.sum(1) / length.clamp_min(1).unsqueeze(1);
  }

  at::Tensor drop(const at::Tensor& x) const {
    return config_.dropout > 0 && is_training() ? at::dropout(x, config_.dropout, true) : x;
  }

  const config::BlstmConfig config_;
  torch::nn::Embedding tok_{nullptr};
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

Result<SequenceInput> find_sequence_input(const config::BlstmConfig& config,
                                          const Samples& sample) {
  const TensorSpec* const tokens = find_tensor(sample, TensorRole::kTokens);
  if (tokens != nullptr && tokens->shape.size() == 1 && tokens->elements() > 0)
    return SequenceInput{.features = config.embedding_dim.value_or(config.hidden_size),
                         .are_tokens = true};
  const TensorSpec* const input = find_tensor(sample, TensorRole::kInput);
  if (input != nullptr && input->shape.size() == 2 && input->elements() > 0)
    return SequenceInput{.features = input->shape[1]};
  return Status(StatusCode::kMismatch,
                "model blstm needs sequences, `input` [steps, features] or `tokens` [steps]; the "
                "data has " +
                    describe(sample));
}

}  // namespace

// The gates of nn.LSTM are input, forget, cell, output. Of its two biases, which are always added,
// one suffices.
void add_forget_bias(Model& model, const config::BlstmConfig& config) {
  if (config.forget_bias == 0) return;
  const at::NoGradGuard no_grad;
  for (const auto& parameter : model.named_parameters())
    if (parameter.key().starts_with("lstm.bias_ih"))
      parameter.value().narrow(0, config.hidden_size, config.hidden_size).add_(config.forget_bias);
}

Result<ModelPtr> make_blstm(const config::BlstmConfig& config, std::optional<int64_t> num_classes,
                            const Samples& sample, uint64_t classes) {
  if (config.num_layers < 1 || config.hidden_size < 1 || config.vocab_size < 1)
    return Status(StatusCode::kInvalidArgument,
                  "model blstm: num_layers, hidden_size and vocab_size must be at least 1");
  STOKER_ASSIGN_OR_RETURN(const SequenceInput steps, find_sequence_input(config, sample));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(std::make_shared<Blstm>(config, steps, outputs));
}

}  // namespace stoker::model
