// alexnet: as in torchvision (the network of "One weird trick for parallelizing convolutional
// neural networks"): five convolutions, three fully connected layers.
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/conv_classifier.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

constexpr int64_t kAlexnetMinSide = 63;  // smallest side for which the last pooling gets 3 x 3
constexpr int64_t kAlexnetPooledSide = 6;

std::shared_ptr<Sequential> make_alexnet_features(int64_t channels) {
  const auto sequential = std::make_shared<Sequential>();
  const auto add_conv = [&](int64_t from, int64_t to, int64_t kernel, int64_t stride,
                            int64_t padding) {
    sequential->add(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(padding)));
    sequential->add_step(relu_inplace);
  };
  const auto add_pool = [&] {
    sequential->add_step([](const at::Tensor& x) { return at::max_pool2d(x, 3, 2); });
  };
  add_conv(channels, 64, 11, 4, 2);
  add_pool();
  add_conv(64, 192, 5, 1, 2);
  add_pool();
  add_conv(192, 384, 3, 1, 1);
  add_conv(384, 256, 3, 1, 1);
  add_conv(256, 256, 3, 1, 1);
  add_pool();
  return sequential;
}

std::shared_ptr<Sequential> make_alexnet_classifier(int64_t width, int64_t outputs,
                                                    double dropout) {
  const auto sequential = std::make_shared<Sequential>();
  sequential->add_dropout(dropout);
  sequential->add(torch::nn::Linear(256 * kAlexnetPooledSide * kAlexnetPooledSide, width));
  sequential->add_step(relu_inplace);
  sequential->add_dropout(dropout);
  sequential->add(torch::nn::Linear(width, width));
  sequential->add_step(relu_inplace);
  sequential->add(torch::nn::Linear(width, outputs));
  return sequential;
}

}  // namespace

Result<ModelPtr> make_alexnet(const config::AlexnetConfig& config,
                              std::optional<int64_t> num_classes, const Samples& sample,
                              uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, "alexnet", kAlexnetMinSide));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  // In this order, because it decides which random numbers initialize each weight.
  const auto features = make_alexnet_features(input.shape[0]);
  const auto classifier = make_alexnet_classifier(config.hidden_dim, outputs, config.dropout);
  return ModelPtr(std::make_shared<ConvClassifier>(features, kAlexnetPooledSide, classifier));
}

}  // namespace stoker::model
