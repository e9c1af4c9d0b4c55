#include "shared/model/layer_builder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

namespace stoker::model {
namespace {

using config::LayerConfig;
using Shape = std::vector<int64_t>;  // of one sample

constexpr int64_t kMaxElements = int64_t{1} << 32;  // of a sample, and of a layer's weight

// What a body makes of its input is added to the input, or to what a shortcut makes of it.
class Residual : public torch::nn::Module {
 public:
  Residual(std::shared_ptr<Chain> body, std::shared_ptr<Chain> maybe_shortcut)
      : body_(register_module("body", std::move(body))),
        maybe_shortcut_(std::move(maybe_shortcut)) {
    if (maybe_shortcut_) register_module("shortcut", maybe_shortcut_);
  }
  at::Tensor forward(const at::Tensor& x) {
    return body_->forward(x) + (maybe_shortcut_ ? maybe_shortcut_->forward(x) : x);
  }

 private:
  std::shared_ptr<Chain> body_, maybe_shortcut_;
};

// At one layer: where it stands, what it is given, and the chain that it goes into.
class LayerBuilder {
 public:
  LayerBuilder(const LayerConfig& layer, std::string where, Shape input,
               const LayerSurroundings& surroundings, Chain& chain)
      : layer_(layer),
        where_(std::move(where)),
        input_(std::move(input)),
        surroundings_(surroundings),
        chain_(chain) {}

  Result<Shape> add() {
    using Adder = Result<Shape> (LayerBuilder::*)();
    static const std::map<std::string, Adder, std::less<>> kAdders = {
        {"conv", &LayerBuilder::conv},
        {"linear", &LayerBuilder::linear},
        {"embedding", &LayerBuilder::embedding},
        {"lstm", &LayerBuilder::lstm},
        {"batch_norm", &LayerBuilder::batch_norm},
        {"layer_norm", &LayerBuilder::layer_norm},
        {"max_pool", &LayerBuilder::pool},
        {"avg_pool", &LayerBuilder::pool},
        {"adaptive_avg_pool", &LayerBuilder::adaptive_pool},
        {"flatten", &LayerBuilder::flatten},
        {"dropout", &LayerBuilder::dropout},
        {"residual", &LayerBuilder::residual},
        {"relu", &LayerBuilder::activation},
        {"gelu", &LayerBuilder::activation},
        {"tanh", &LayerBuilder::activation},
        {"sigmoid", &LayerBuilder::activation},
    };
    const auto adder = kAdders.find(layer_.kind);
    if (adder == kAdders.end()) return refuse("no such kind of layer");
    if (surroundings_.of_tokens && layer_.kind != "embedding")
      return refuse("an embedding must be the first layer over tokens");
    return (this->*adder->second)();
  }

 private:
  Status refuse(const std::string& what) const {
    return Status(Code::kMismatch, where_ + " (" + layer_.kind + "): " + what + "; it is given " +
                                       (surroundings_.of_tokens ? "tokens " : "") +
                                       shape_text(input_));
  }
  Status needs_picture() const { return refuse("needs pictures [channels, height, width]"); }

  static bool can_be_held(const Shape& shape) {
    int64_t elements = 1;
    for (const int64_t side : shape)
      if (__builtin_mul_overflow(elements, side, &elements) || elements > kMaxElements)
        return false;
    return true;
  }
  // Whether `shape` may come out of a layer with such a weight.
  Result<Shape> checked(Shape shape, const Shape& weight = {}) const {
    if (!can_be_held(shape))
      return refuse("makes " + shape_text(shape) + ", more than can be held");
    if (!can_be_held(weight)) return refuse("has more weights than can be held");
    return shape;
  }

  // The side of what a window that moves by `stride` makes.
  Result<Shape> after_window(int64_t channels, int64_t stride) const {
    Shape shape{channels};
    for (const size_t i : {1u, 2u}) {
      const int64_t room = input_[i] + 2 * layer_.padding - layer_.kernel;
      if (room < 0)
        return refuse("its kernel of " + std::to_string(layer_.kernel) +
                      " does not fit into the picture with a padding of " +
                      std::to_string(layer_.padding));
      shape.push_back(room / stride + 1);
    }
    return shape;
  }

  Result<Shape> conv() {
    if (input_.size() != 3) return needs_picture();
    const int64_t from = input_[0], to = layer_.channels,
                  stride = std::max<int64_t>(1, layer_.stride);
    if (from % layer_.groups != 0 || to % layer_.groups != 0)
      return refuse("its groups (" + std::to_string(layer_.groups) +
                    ") must divide both its channels (" + std::to_string(to) +
                    ") and the channels that it is given");
    STOKER_ASSIGN_OR_RETURN(Shape shape, after_window(to, stride));
    STOKER_ASSIGN_OR_RETURN(
        shape, checked(shape, {from / layer_.groups, to, layer_.kernel, layer_.kernel}));
    chain_.add(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, layer_.kernel)
                                     .stride(stride)
                                     .padding(layer_.padding)
                                     .groups(layer_.groups)
                                     .bias(layer_.bias)));
    return shape;
  }

  // Over the last dimension.
  Result<Shape> linear() {
    if (input_.empty()) return refuse("needs one dimension or more");
    const int64_t outputs = layer_.outputs == 0 ? surroundings_.outputs : layer_.outputs;
    Shape shape = input_;
    shape.back() = outputs;
    STOKER_ASSIGN_OR_RETURN(shape, checked(shape, {input_.back(), outputs}));
    chain_.add(
        torch::nn::Linear(torch::nn::LinearOptions(input_.back(), outputs).bias(layer_.bias)));
    return shape;
  }

  Result<Shape> embedding() {
    if (!surroundings_.of_tokens) return refuse("needs tokens, as the first layer");
    if (layer_.vocab < surroundings_.outputs)
      return refuse("knows " + std::to_string(layer_.vocab) + " tokens, but the data has " +
                    std::to_string(surroundings_.outputs));
    STOKER_ASSIGN_OR_RETURN(Shape shape,
                            checked({input_[0], layer_.width}, {layer_.vocab, layer_.width}));
    chain_.add(torch::nn::Embedding(layer_.vocab, layer_.width));
    return shape;
  }

  Result<Shape> lstm() {
    if (input_.size() != 2) return refuse("needs sequences [time, features]");
    STOKER_ASSIGN_OR_RETURN(Shape shape, checked({input_[0], layer_.width},
                                                 {4, layer_.width, input_[1] + layer_.width}));
    const torch::nn::LSTM lstm(torch::nn::LSTMOptions(input_[1], layer_.width).batch_first(true));
    chain_.add(lstm,
               [lstm = lstm.ptr()](const at::Tensor& x) { return std::get<0>(lstm->forward(x)); });
    return shape;
  }

  Result<Shape> batch_norm() {
    if (input_.size() == 3) {
      chain_.add(torch::nn::BatchNorm2d(input_[0]));
    } else if (input_.size() == 1) {
      chain_.add(torch::nn::BatchNorm1d(input_[0]));
    } else {
      return refuse("needs pictures [channels, height, width] or numbers [width]");
    }
    return input_;
  }

  // Over the last dimension.
  Result<Shape> layer_norm() {
    if (input_.empty()) return refuse("needs one dimension or more");
    chain_.add(torch::nn::LayerNorm(torch::nn::LayerNormOptions({input_.back()})));
    return input_;
  }

  Result<Shape> pool() {
    if (input_.size() != 3) return needs_picture();
    const int64_t kernel = layer_.kernel, padding = layer_.padding;
    const int64_t stride = layer_.stride == 0 ? kernel : layer_.stride;
    if (padding > kernel / 2) return refuse("its padding must be at most half its kernel");
    STOKER_ASSIGN_OR_RETURN(Shape shape, after_window(input_[0], stride));
    if (layer_.kind == "max_pool") {
      chain_.add_step(
          [=](const at::Tensor& x) { return at::max_pool2d(x, kernel, stride, padding); });
    } else {
      chain_.add_step(
          [=](const at::Tensor& x) { return at::avg_pool2d(x, kernel, stride, padding); });
    }
    return shape;
  }

  Result<Shape> adaptive_pool() {
    if (input_.size() != 3) return needs_picture();
    const int64_t size = layer_.size;
    chain_.add_step([size](const at::Tensor& x) {
      return at::adaptive_avg_pool2d(x, {size, size});
    });
    return checked({input_[0], size, size});
  }

  Result<Shape> flatten() {
    int64_t elements = 1;
    for (const int64_t side : input_) elements *= side;  // checked() bounds the product
    chain_.add_step([](const at::Tensor& x) { return x.flatten(1); });
    return Shape{elements};
  }

  Result<Shape> dropout() {
    chain_.add_dropout(layer_.part);
    return input_;
  }

  Result<Shape> activation() {
    if (layer_.kind == "relu") chain_.add_step([](const at::Tensor& x) { return x.relu(); });
    if (layer_.kind == "gelu") chain_.add_step([](const at::Tensor& x) { return at::gelu(x); });
    if (layer_.kind == "tanh") chain_.add_step([](const at::Tensor& x) { return x.tanh(); });
    if (layer_.kind == "sigmoid") chain_.add_step([](const at::Tensor& x) { return x.sigmoid(); });
    return input_;
  }

  Result<Shape> residual();

  const LayerConfig& layer_;
  const std::string where_;
  const Shape input_;
  const LayerSurroundings surroundings_;
  Chain& chain_;
};

Result<Shape> add_list(const std::vector<LayerConfig>& layers, const std::string& where,
                       Shape shape, LayerSurroundings surroundings, Chain& chain) {
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerBuilder builder(layers[i], where + "[" + std::to_string(i) + "]", shape, surroundings,
                         chain);
    STOKER_ASSIGN_OR_RETURN(shape, builder.add());
    surroundings.of_tokens = false;
  }
  return shape;
}

Result<Shape> LayerBuilder::residual() {
  const auto body = std::make_shared<Chain>();
  STOKER_ASSIGN_OR_RETURN(const Shape shape,
                          add_list(layer_.body, where_ + ".body", input_, surroundings_, *body));
  std::shared_ptr<Chain> maybe_shortcut;
  Shape other = input_;
  if (!layer_.shortcut.empty()) {
    maybe_shortcut = std::make_shared<Chain>();
    STOKER_ASSIGN_OR_RETURN(other, add_list(layer_.shortcut, where_ + ".shortcut", input_,
                                            surroundings_, *maybe_shortcut));
  }
  if (shape != other)
    return refuse("its body makes " + shape_text(shape) + " and its shortcut " + shape_text(other) +
                  ", which cannot be added");
  chain_.add(std::make_shared<Residual>(body, maybe_shortcut));
  return shape;
}

}  // namespace

Result<std::vector<int64_t>> add_layers(const std::vector<LayerConfig>& layers,
                                        const std::vector<int64_t>& input,
                                        const LayerSurroundings& surroundings, Chain& chain) {
  return add_list(layers, "model.stack", input, surroundings, chain);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t side : shape) text += (text.empty() ? "" : ", ") + std::to_string(side);
  return "[" + text + "]";
}

}  // namespace stoker::model
