#include "shared/model/layer_builder.h"

#include <array>
#include <utility>
#include <variant>

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

#include "shared/model/lstm_layers.h"

namespace stoker::model {
namespace {

using config::Layer;
using Shape = std::vector<int64_t>;  // of one sample

constexpr int64_t kMaxElements = int64_t{1} << 32;  // of a sample, and of the weight of a layer

// Adds the output of the body to the input, or to the output of the shortcut.
class Residual : public torch::nn::Module {
 public:
  Residual(std::shared_ptr<Sequential> body, std::shared_ptr<Sequential> maybe_shortcut)
      : body_(register_module("body", std::move(body))),
        maybe_shortcut_(std::move(maybe_shortcut)) {
    if (maybe_shortcut_) register_module("shortcut", maybe_shortcut_);
  }
  at::Tensor forward(const at::Tensor& x) {
    return body_->forward(x) + (maybe_shortcut_ ? maybe_shortcut_->forward(x) : x);
  }

 private:
  std::shared_ptr<Sequential> body_, maybe_shortcut_;
};

// In the order of the alternatives of config::LayerVariant.
constexpr std::array kNames = {
    "conv2d",  "linear",  "embedding", "lstm",       "batch_norm", "layer_norm",          "relu",
    "gelu",    "tanh",    "sigmoid",   "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "dropout",
    "flatten", "residual"};
static_assert(kNames.size() == std::variant_size_v<config::LayerVariant>);

// Builds one layer: knows its position, its input shape and the chain that it is added to.
class LayerBuilder {
 public:
  LayerBuilder(const Layer& layer, const std::string& where, Shape input,
               const LayerContext& layer_context, Sequential& sequential)
      : layer_(layer),
        where_(where + '.' + kNames.at(layer.index())),
        input_(std::move(input)),
        layer_context_(layer_context),
        sequential_(sequential) {}

  Result<Shape> add() {
    if (layer_context_.has_tokens &&
        !std::holds_alternative<config::EmbeddingLayer>(layer_.variant()))
      return invalid_layer("an embedding must be the first layer over tokens");
    return std::visit([this](const auto& layer) { return add(layer); }, layer_.variant());
  }

 private:
  struct Window {
    int64_t kernel, stride, padding;
  };

  Status invalid_layer(const std::string& what) const {
    return Status(StatusCode::kMismatch, where_ + ": " + what + "; the input is " +
                                             (layer_context_.has_tokens ? "tokens " : "") +
                                             format_shape(input_));
  }
  Status needs_image() const { return invalid_layer("needs images [channels, height, width]"); }

  static bool is_supported_size(const Shape& shape) {
    int64_t elements = 1;
    for (const int64_t side : shape)
      if (__builtin_mul_overflow(elements, side, &elements) || elements > kMaxElements)
        return false;
    return true;
  }
  // Returns `shape` if the output and the weight of the layer are small enough.
  Result<Shape> checked(Shape shape, const Shape& weight = {}) const {
    if (!is_supported_size(shape))
      return invalid_layer("produces " + format_shape(shape) + ", which is too large");
    if (!is_supported_size(weight)) return invalid_layer("has a weight that is too large");
    return shape;
  }

  // Output shape of a sliding window (convolution or pooling).
  Result<Shape> window_output_shape(int64_t channels, const Window& window) const {
    Shape shape{channels};
    for (const size_t i : {1u, 2u}) {
      const int64_t range = input_[i] + 2 * window.padding - window.kernel;
      if (range < 0)
        return invalid_layer("its kernel_size of " + std::to_string(window.kernel) +
                             " does not fit into the image with a padding of " +
                             std::to_string(window.padding));
      shape.push_back(range / window.stride + 1);
    }
    return shape;
  }

  Result<Shape> add(const config::Conv2dLayer& layer) {
    if (input_.size() != 3) return needs_image();
    const int64_t from = input_[0], to = layer.out_channels;
    if (from % layer.groups != 0 || to % layer.groups != 0)
      return invalid_layer("its groups (" + std::to_string(layer.groups) +
                           ") must divide both its out_channels (" + std::to_string(to) +
                           ") and the input channels");
    STOKER_ASSIGN_OR_RETURN(
        Shape shape, window_output_shape(to, {layer.kernel_size, layer.stride, layer.padding}));
    STOKER_ASSIGN_OR_RETURN(
        shape, checked(shape, {from / layer.groups, to, layer.kernel_size, layer.kernel_size}));
    sequential_.add(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, layer.kernel_size)
                                          .stride(layer.stride)
                                          .padding(layer.padding)
                                          .groups(layer.groups)
                                          .bias(layer.bias)));
    return shape;
  }

  // Applies to the last dimension.
  Result<Shape> add(const config::LinearLayer& layer) {
    if (input_.empty()) return invalid_layer("needs one dimension or more");
    const int64_t outputs = layer.out_features.value_or(layer_context_.outputs);
    Shape shape = input_;
    shape.back() = outputs;
    STOKER_ASSIGN_OR_RETURN(shape, checked(shape, {input_.back(), outputs}));
    sequential_.add(
        torch::nn::Linear(torch::nn::LinearOptions(input_.back(), outputs).bias(layer.bias)));
    return shape;
  }

  Result<Shape> add(const config::EmbeddingLayer& layer) {
    const int64_t tokens = layer.num_embeddings, width = layer.embedding_dim;
    if (!layer_context_.has_tokens) return invalid_layer("needs tokens, as the first layer");
    if (tokens < layer_context_.outputs)
      return invalid_layer("its num_embeddings is " + std::to_string(tokens) +
                           ", but the data has " + std::to_string(layer_context_.outputs) +
                           " tokens");
    STOKER_ASSIGN_OR_RETURN(Shape shape, checked({input_[0], width}, {tokens, width}));
    sequential_.add(torch::nn::Embedding(tokens, width));
    return shape;
  }

  Result<Shape> add(const config::LstmLayer& layer) {
    const int64_t width = layer.hidden_size;
    if (input_.size() != 2) return invalid_layer("needs sequences [time, features]");
    STOKER_ASSIGN_OR_RETURN(Shape shape,
                            checked({input_[0], width}, {4, width, input_[1] + width}));
    const torch::nn::LSTM lstm(torch::nn::LSTMOptions(input_[1], width).batch_first(true));
    sequential_.add(lstm, [lstm](const at::Tensor& x) {
      torch::nn::LSTM handle = lstm;
      return run_lstm(handle, x).steps;
    });
    return shape;
  }

  Result<Shape> add(const config::BatchNormLayer&) {
    if (input_.size() == 3) {
      sequential_.add(torch::nn::BatchNorm2d(input_[0]));
    } else if (input_.size() == 1) {
      sequential_.add(torch::nn::BatchNorm1d(input_[0]));
    } else {
      return invalid_layer("needs images [channels, height, width] or vectors [width]");
    }
    return input_;
  }

  // Applies to the last dimension.
  Result<Shape> add(const config::LayerNormLayer&) {
    if (input_.empty()) return invalid_layer("needs one dimension or more");
    sequential_.add(torch::nn::LayerNorm(torch::nn::LayerNormOptions({input_.back()})));
    return input_;
  }

  Result<Shape> add(const config::MaxPool2dLayer& layer) {
    const Window window = to_window(layer);
    STOKER_ASSIGN_OR_RETURN(Shape shape, pool_output_shape(window));
    sequential_.add_step([=](const at::Tensor& x) {
      return at::max_pool2d(x, window.kernel, window.stride, window.padding);
    });
    return shape;
  }

  Result<Shape> add(const config::AvgPool2dLayer& layer) {
    const Window window = to_window(layer);
    STOKER_ASSIGN_OR_RETURN(Shape shape, pool_output_shape(window));
    sequential_.add_step([=](const at::Tensor& x) {
      return at::avg_pool2d(x, window.kernel, window.stride, window.padding);
    });
    return shape;
  }

  template <typename Pool>
  static Window to_window(const Pool& layer) {
    return {layer.kernel_size, layer.stride.value_or(layer.kernel_size), layer.padding};
  }
  Result<Shape> pool_output_shape(const Window& window) const {
    if (input_.size() != 3) return needs_image();
    if (window.padding > window.kernel / 2)
      return invalid_layer("its padding must be at most half its kernel_size");
    return window_output_shape(input_[0], window);
  }

  Result<Shape> add(const config::AdaptiveAvgPool2dLayer& layer) {
    if (input_.size() != 3) return needs_image();
    const int64_t size = layer.output_size;
    sequential_.add_step([size](const at::Tensor& x) {
      return at::adaptive_avg_pool2d(x, {size, size});
    });
    return checked({input_[0], size, size});
  }

  Result<Shape> add(const config::FlattenLayer&) {
    int64_t elements = 1;
    for (const int64_t side : input_) elements *= side;  // checked() bounds the product
    sequential_.add_step([](const at::Tensor& x) { return x.flatten(1); });
    return Shape{elements};
  }

  Result<Shape> add(const config::DropoutLayer& layer) {
    sequential_.add_dropout(layer.p);
    return input_;
  }

  Result<Shape> add(const config::ReluLayer&) {
    return elementwise([](const at::Tensor& x) { return x.relu(); });
  }
  Result<Shape> add(const config::GeluLayer&) {
    return elementwise([](const at::Tensor& x) { return at::gelu(x); });
  }
  Result<Shape> add(const config::TanhLayer&) {
    return elementwise([](const at::Tensor& x) { return x.tanh(); });
  }
  Result<Shape> add(const config::SigmoidLayer&) {
    return elementwise([](const at::Tensor& x) { return x.sigmoid(); });
  }
  Result<Shape> elementwise(Sequential::Step step) {
    sequential_.add_step(std::move(step));
    return input_;
  }

  Result<Shape> add(const config::ResidualLayer& layer);

  const Layer& layer_;
  const std::string where_;
  const Shape input_;
  const LayerContext layer_context_;
  Sequential& sequential_;
};

Result<Shape> add_list(const std::vector<Layer>& layers, const std::string& where, Shape shape,
                       LayerContext layer_context, Sequential& sequential) {
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerBuilder builder(layers[i], where + "[" + std::to_string(i) + "]", shape, layer_context,
                         sequential);
    STOKER_ASSIGN_OR_RETURN(shape, builder.add());
    layer_context.has_tokens = false;
  }
  return shape;
}

Result<Shape> LayerBuilder::add(const config::ResidualLayer& layer) {
  const auto body = std::make_shared<Sequential>();
  STOKER_ASSIGN_OR_RETURN(const Shape shape,
                          add_list(layer.body, where_ + ".body", input_, layer_context_, *body));
  std::shared_ptr<Sequential> maybe_shortcut;
  Shape other = input_;
  if (!layer.shortcut.empty()) {
    maybe_shortcut = std::make_shared<Sequential>();
    STOKER_ASSIGN_OR_RETURN(other, add_list(layer.shortcut, where_ + ".shortcut", input_,
                                            layer_context_, *maybe_shortcut));
  }
  if (shape != other)
    return invalid_layer("its body produces " + format_shape(shape) + " and its shortcut " +
                         format_shape(other) + ", which cannot be added");
  sequential_.add(std::make_shared<Residual>(body, maybe_shortcut));
  return shape;
}

}  // namespace

Result<std::vector<int64_t>> add_layers(const std::vector<Layer>& layers,
                                        const std::vector<int64_t>& input,
                                        const LayerContext& layer_context, Sequential& sequential) {
  return add_list(layers, "model.layers", input, layer_context, sequential);
}

std::string format_shape(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t side : shape) text += (text.empty() ? "" : ", ") + std::to_string(side);
  return "[" + text + "]";
}

}  // namespace stoker::model
