// lstm: a recurrent language model: embedding, LSTM layers, and a linear head without bias, which
// may be the embedding itself. Each sample begins with a state of zeros.
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/data_fit.h"
#include "shared/model/lstm_layers.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

// Of embedding and head, as in PyTorch's example of a word language model.
constexpr double kInitialRange = 0.1;

class Lstm : public Model {
 public:
  explicit Lstm(const config::ModelConfig& config)
      : config_(config),
        tok_(register_module("tok", torch::nn::Embedding(config.vocab, config.width))),
        lstm_(register_module("lstm",
                              torch::nn::LSTM(torch::nn::LSTMOptions(config.width, config.width)
                                                  .num_layers(config.layers)
                                                  .dropout(config.layers > 1 ? config.dropout : 0.0)
                                                  .batch_first(true)))) {
    torch::nn::init::uniform_(tok_->weight, -kInitialRange, kInitialRange);
    if (config.tied) return;
    const auto options = torch::nn::LinearOptions(config.width, config.vocab).bias(false);
    head_ = register_module("head", torch::nn::Linear(options));
    torch::nn::init::uniform_(head_->weight, -kInitialRange, kInitialRange);
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor states = run_lstm(lstm_, drop(tok_(input))).steps;
    return at::linear(drop(states), config_.tied ? tok_->weight : head_->weight);
  }

  int64_t context() const override { return config_.context; }
  int64_t vocab() const override { return config_.vocab; }

 private:
  at::Tensor drop(const at::Tensor& x) const {
    return config_.dropout > 0 && is_training() ? at::dropout(x, config_.dropout, true) : x;
  }

  const config::ModelConfig config_;
  torch::nn::Embedding tok_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

Result<ModelPtr> make_lstm(const config::ModelConfig& config, const Samples& sample,
                           uint64_t classes) {
  if (config.layers < 1 || config.width < 1 || config.context < 1 || config.vocab < 1)
    return Status(Code::kInvalidArgument,
                  "model lstm: layers, width, context and vocab must be at least 1");
  STOKER_RETURN_IF_ERROR(check_tokens(config, sample, classes, "lstm"));
  return ModelPtr(std::make_shared<Lstm>(config));
}

}  // namespace stoker::model
