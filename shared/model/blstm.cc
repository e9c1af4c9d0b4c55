// blstm: a bidirectional LSTM over a sequence of vectors, and a linear layer over its last states or
// over the mean of all.
#include <ATen/ops/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/data_fit.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

class Blstm : public Model {
 public:
  Blstm(const config::ModelConfig& config, int64_t features, int64_t outputs)
      : config_(config),
        lstm_(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(features, config.width)
                                                          .num_layers(config.layers)
                                                          .dropout(between_layers(config))
                                                          .batch_first(true)
                                                          .bidirectional(true)))),
        fc_(register_module("fc", torch::nn::Linear(2 * config.width, outputs))) {}

  at::Tensor forward(const at::Tensor& input) override {
    const auto [states, last] = lstm_(input);
    if (config_.states == "mean") return fc_(drop(states.mean(1)));
    // Of the last layer: forward in time, which ends at the last step, then backward, at the first.
    return fc_(drop(std::get<0>(last).slice(0, -2).transpose(0, 1).flatten(1)));
  }

 private:
  // LibTorch warns of a dropout that has no place.
  static double between_layers(const config::ModelConfig& config) {
    return config.layers > 1 ? config.dropout : 0.0;
  }

  at::Tensor drop(const at::Tensor& x) const {
    return config_.dropout > 0 && is_training() ? at::dropout(x, config_.dropout, true) : x;
  }

  const config::ModelConfig config_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear fc_;
};

}  // namespace

Result<ModelPtr> make_blstm(const config::ModelConfig& config, const Samples& sample,
                            uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input, input_of(sample, "blstm", 0));
  if (input.shape.size() != 2 || input.elements() < 1) {
    return Status(
        Code::kMismatch,
        "model blstm needs sequences `input` [steps, features]; the data has " + to_string(input));
  }
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, outputs_for(config, sample, classes));
  if (config.layers < 1 || config.width < 1)
    return Status(Code::kInvalidArgument, "model blstm: layers and width must be at least 1");
  return ModelPtr(std::make_shared<Blstm>(config, input.shape[1], outputs));
}

}  // namespace stoker::model
