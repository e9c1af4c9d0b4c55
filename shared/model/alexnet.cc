// alexnet: torchvision's (the network of "One weird trick for parallelizing convolutional neural
// networks"): five convolutions, three fully connected layers.
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_fit.h"
#include "shared/model/two_part_net.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

constexpr int64_t kMinSide = 63;  // the last pooling still sees 3 x 3
constexpr int64_t kPooledSide = 6;

std::shared_ptr<Chain> make_features(int64_t channels) {
  const auto chain = std::make_shared<Chain>();
  const auto add_conv = [&](int64_t from, int64_t to, int64_t kernel, int64_t stride,
                            int64_t padding) {
    chain->add(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(padding)));
    chain->add_step(relu_in_place);
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
  chain->add_step(relu_in_place);
  chain->add_dropout(dropout);
  chain->add(torch::nn::Linear(width, width));
  chain->add_step(relu_in_place);
  chain->add(torch::nn::Linear(width, outputs));
  return chain;
}

}  // namespace

Result<ModelPtr> make_alexnet(const config::AlexnetConfig& config,
                              std::optional<int64_t> num_classes, const Samples& sample,
                              uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input, input_of(sample, "alexnet", kMinSide));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, outputs_for(num_classes, sample, classes));
  // One after the other: the order decides which random numbers each weight gets.
  const auto features = make_features(input.shape[0]);
  const auto classifier = make_classifier(config.hidden_dim, outputs, config.dropout);
  return ModelPtr(std::make_shared<TwoPartNet>(features, kPooledSide, classifier));
}

}  // namespace stoker::model
