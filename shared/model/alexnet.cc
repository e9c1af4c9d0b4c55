// alexnet: torchvision's (the network of "One weird trick for parallelizing convolutional neural
// networks"): five convolutions, three fully connected layers.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/chain.h"
#include "shared/model/data_fit.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

constexpr int64_t kMinSide = 63;  // the last pooling still sees 3 x 3
constexpr int64_t kPooledSide = 6;

at::Tensor relu(at::Tensor x) { return x.relu_(); }

std::shared_ptr<Chain> make_features(int64_t channels) {
  const auto chain = std::make_shared<Chain>();
  const auto add_conv = [&](int64_t from, int64_t to, int64_t kernel, int64_t stride,
                            int64_t padding) {
    chain->add(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(padding)));
    chain->add_step(relu);
  };
  const auto add_pool = [&] {
    chain->add_step([](const at::Tensor& x) { return at::max_pool2d(x, 3, 2); });
  };
  add_conv(channels, 64, 11, 4, 2);
  add_pool();
  add_conv(64, 192, 5, 1, 2);
  add_pool();
  add_conv(192, 384, 3, 1, 1);
  add_conv(384, 256, 3, 1, 1);
  add_conv(256, 256, 3, 1, 1);
  add_pool();
  return chain;
}

std::shared_ptr<Chain> make_classifier(int64_t width, int64_t outputs, double dropout) {
  const auto chain = std::make_shared<Chain>();
  chain->add_dropout(dropout);
  chain->add(torch::nn::Linear(256 * kPooledSide * kPooledSide, width));
  chain->add_step(relu);
  chain->add_dropout(dropout);
  chain->add(torch::nn::Linear(width, width));
  chain->add_step(relu);
  chain->add(torch::nn::Linear(width, outputs));
  return chain;
}

class Alexnet : public Model {
 public:
  Alexnet(int64_t channels, int64_t width, int64_t outputs, double dropout)
      : features_(register_module("features", make_features(channels))),
        classifier_(register_module("classifier", make_classifier(width, outputs, dropout))) {}

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x =
        at::adaptive_avg_pool2d(features_->forward(input), {kPooledSide, kPooledSide});
    return classifier_->forward(x.flatten(1));
  }

 private:
  std::shared_ptr<Chain> features_, classifier_;
};

}  // namespace

Result<ModelPtr> make_alexnet(const config::ModelConfig& config, const Samples& sample,
                              uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input, input_of(sample, "alexnet", kMinSide));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, outputs_for(config, sample, classes));
  return ModelPtr(std::make_shared<Alexnet>(input.shape[0], config.width, outputs, config.dropout));
}

}  // namespace stoker::model
