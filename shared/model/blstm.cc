// blstm: a bidirectional LSTM over a sequence of vectors, and a linear layer over its last states or
// over the mean of all.
#include <ATen/ops/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/data_fit.h"
#include "shared/model/lstm_layers.h"
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
    const LstmStates states = run_lstm(lstm_, input);
    return fc_(drop(config_.states == "mean" ? states.steps.mean(1) : states.last));
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
