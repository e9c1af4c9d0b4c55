// lenet5: LeNet-5 in its modern form, with ReLU and max pooling. The first convolution is padded,
// so that 28 x 28 images have the sizes of the original (28, 14, 10, 5).
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

constexpr int64_t kLenetMinSide = 12;  // smallest side for which the second pooling gets 2 x 2

class Lenet : public Model {
 public:
  Lenet(int64_t channels, int64_t height, int64_t width, int64_t outputs)
      : conv1_(register_module("conv1", conv(channels, 6, 2))),
        conv2_(register_module("conv2", conv(6, 16, 0))),
        fc1_(register_module("fc1", torch::nn::Linear(16 * after(height) * after(width), 120))),
        fc2_(register_module("fc2", torch::nn::Linear(120, 84))),
        fc3_(register_module("fc3", torch::nn::Linear(84, outputs))) {}

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::max_pool2d(at::relu(conv1_(input)), 2);
    x = at::max_pool2d(at::relu(conv2_(x)), 2).flatten(1);
    return fc3_(at::relu(fc2_(at::relu(fc1_(x)))));
  }

 private:
  static torch::nn::Conv2d conv(int64_t from, int64_t to, int64_t padding) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 5).padding(padding));
  }
  static int64_t after(int64_t side) { return (side / 2 - 4) / 2; }

  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

Result<ModelPtr> make_lenet5(const config::Lenet5Config&, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, "lenet5", kLenetMinSide));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(std::make_shared<Lenet>(input.shape[0], input.shape[1], input.shape[2], outputs));
}

}  // namespace stoker::model
