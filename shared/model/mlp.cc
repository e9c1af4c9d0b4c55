// mlp: alternating Linear and ReLU (and Dropout), numbered as in PyTorch's nn.Sequential.
#include <ATen/ops/dropout.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/linear.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

class Mlp : public Model {
 public:
  Mlp(int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs, double dropout)
      : dropout_(dropout) {
    // A hidden layer occupies the indices of its Linear, its ReLU and, if there is one, its
    // Dropout.
    const int64_t numbers = dropout > 0 ? 3 : 2;
    int64_t width = inputs, number = 0;
    for (const int64_t next : hidden) {
      layers_.push_back(register_module(std::to_string(number), torch::nn::Linear(width, next)));
      width = next;
      number += numbers;
    }
    output_layer_ = std::to_string(number);
    layers_.push_back(register_module(output_layer_, torch::nn::Linear(width, outputs)));
  }

  std::string output_layer() const override { return output_layer_; }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input.flatten(1);
    for (size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = at::relu(linear(layers_[i], x));
      if (dropout_ > 0 && is_training()) x = at::dropout(x, dropout_, true);
    }
    return linear(layers_.back(), x);
  }

 private:
  const double dropout_;
  std::string output_layer_;
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

Result<ModelPtr> make_mlp(const config::MlpConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input, find_input_tensor(sample, "mlp", 0));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  if (config.in_features && *config.in_features != input.elements()) {
    return Status(StatusCode::kMismatch, "model.in_features is " +
                                             std::to_string(*config.in_features) +
                                             ", but the data has " + to_string(input));
  }
  for (const int64_t width : config.hidden_sizes)
    if (width < 1)
      return Status(StatusCode::kInvalidArgument, "model.hidden_sizes: sizes must be at least 1");
  return ModelPtr(
      std::make_shared<Mlp>(input.elements(), config.hidden_sizes, outputs, config.dropout));
}

}  // namespace stoker::model
