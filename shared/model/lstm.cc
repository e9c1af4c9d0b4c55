// lstm_lm: a recurrent language model: embedding, LSTM layers, and a linear head without bias,
// which can share the weight of the embedding. Each sample starts with a zero state.
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/lstm_layers.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

// For embedding and head, as in PyTorch's word language model example.
constexpr double kInitialRange = 0.1;

class Lstm : public Model {
 public:
  explicit Lstm(const config::LstmLmConfig& config)
      : config_(config),
        tok_(register_module("tok", torch::nn::Embedding(*config.vocab_size, config.hidden_size))),
        lstm_(register_module(
            "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(config.hidden_size, config.hidden_size)
                                        .num_layers(config.num_layers)
                                        .dropout(config.num_layers > 1 ? config.dropout : 0.0)
                                        .batch_first(true)))) {
    torch::nn::init::uniform_(tok_->weight, -kInitialRange, kInitialRange);
    if (config.tie_weights) return;
    const auto options =
        torch::nn::LinearOptions(config.hidden_size, *config.vocab_size).bias(false);
    head_ = register_module("head", torch::nn::Linear(options));
    torch::nn::init::uniform_(head_->weight, -kInitialRange, kInitialRange);
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor states = run_lstm(lstm_, drop(tok_(input))).steps;
    return at::linear(drop(states), config_.tie_weights ? tok_->weight : head_->weight);
  }

  int64_t context() const override { return config_.context_length; }
  int64_t vocab() const override { return *config_.vocab_size; }

 private:
  at::Tensor drop(const at::Tensor& x) const {
    return config_.dropout > 0 && is_training() ? at::dropout(x, config_.dropout, true) : x;
  }

  const config::LstmLmConfig config_;
  torch::nn::Embedding tok_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

Result<ModelPtr> make_lstm(const config::LstmLmConfig& config, const Samples& sample,
                           uint64_t classes) {
  if (config.num_layers < 1 || config.hidden_size < 1 || config.context_length < 1 ||
      config.vocab_size.value_or(0) < 1)
    return Status(
        StatusCode::kInvalidArgument,
        "model lstm_lm: num_layers, hidden_size, context_length and vocab_size must be at least 1");
  STOKER_RETURN_IF_ERROR(
      validate_vocab({config.context_length, *config.vocab_size}, sample, classes, "lstm_lm"));
  return ModelPtr(std::make_shared<Lstm>(config));
}

}  // namespace stoker::model
