// Checks for the tests of a plugin model, with any test framework or none: a check that fails throws
// Failure, whose text says what differs and where.
//
//   #include <stoker/testing.h>
//
//   int main() {
//     const stoker::plugin::ModelSpec spec{.args = {"{}", {}}, .input_shape = {8}, .num_classes = 3};
//     const auto model = stoker_plugin()->make(spec);
//     stoker::testing::expect_shape(model->forward(at::zeros({4, 8})), {4, 3});
//     stoker::testing::expect_gradients(*model, at::randn({4, 8}));
//   }
//
// Compile it together with the plugin's source and link LibTorch: docs/examples/plugin has a test
// of the example, and compile.sh, which does this.
//
// Threads: functions of their arguments; one thread per model.
// Errors:  Failure; the exceptions of LibTorch and of the model pass through.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <stoker/plugin.h>
#include <torch/optim/adam.h>

namespace stoker::testing {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// ---- Tensors

inline std::string format_shape(at::IntArrayRef shape) {
  std::ostringstream text;
  for (size_t i = 0; i < shape.size(); ++i) text << (i == 0 ? "[" : ", ") << shape[i];
  return shape.empty() ? "[]" : text.str() + "]";
}

inline void expect_shape(const at::Tensor& tensor, const std::vector<int64_t>& expected) {
  if (tensor.defined() && tensor.sizes() == at::IntArrayRef(expected)) return;
  throw Failure("shape is " + (tensor.defined() ? format_shape(tensor.sizes()) : "undefined") +
                ", expected " + format_shape(expected));
}

// Shapes must be equal, and |actual - expected| <= atol + rtol * |expected| for each element, as in
// torch.allclose; NaN differs from everything. `what` is the start of the message.
inline void expect_all_close(const at::Tensor& actual, const at::Tensor& expected,
                             double rtol = 1e-5, double atol = 1e-8,
                             const std::string& what = "tensors") {
  if (actual.sizes() != expected.sizes())
    throw Failure(what + ": shape is " + format_shape(actual.sizes()) + ", expected " +
                  format_shape(expected.sizes()));
  const at::Tensor one = actual.detach().to(at::kCPU, at::kDouble).flatten();
  const at::Tensor other = expected.detach().to(at::kCPU, at::kDouble).flatten();
  const at::Tensor differs = at::isclose(one, other, rtol, atol).logical_not();
  const int64_t count = differs.sum().item<int64_t>();
  if (count == 0) return;
  // The largest difference; NaN counts as the largest.
  const at::Tensor distance = one.sub(other).abs().nan_to_num(1e300, 1e300).mul(differs);
  const int64_t at = distance.argmax().item<int64_t>();
  std::ostringstream text;
  text.precision(9);
  text << what << ": " << count << " of " << one.numel() << " elements differ, most at flat index "
       << at << ": " << one[at].item<double>() << ", expected " << other[at].item<double>();
  throw Failure(text.str());
}

// ---- Gradients

struct GradientCheck {
  double eps = 1e-6;  // step of the central difference, in F64
  double rtol = 1e-3;
  double atol = 1e-5;
  int64_t max_elements = 20;  // per tensor, evenly spaced
};

namespace internal {

// Converts the model's parameters and floating-point buffers to F64; the destructor converts them
// back to F32, in which their values are unchanged.
class InDouble {
 public:
  explicit InDouble(plugin::Model& model) : was_training_(model.is_training()), model_(model) {
    model.eval();
    convert(at::kDouble);
  }
  ~InDouble() {
    convert(at::kFloat);
    model_.train(was_training_);
  }
  InDouble(const InDouble&) = delete;
  InDouble& operator=(const InDouble&) = delete;

 private:
  void convert(at::ScalarType dtype) {
    for (at::Tensor& parameter : model_.parameters()) {
      parameter.mutable_grad() = at::Tensor();
      parameter.set_data(parameter.detach().to(dtype).contiguous());
    }
    for (at::Tensor& buffer : model_.buffers())
      if (buffer.is_floating_point()) buffer.set_data(buffer.detach().to(dtype));
  }

  const bool was_training_;
  plugin::Model& model_;
};

// A scalar that depends on every output with another weight.
inline at::Tensor weighted_sum(const at::Tensor& outputs) {
  const at::Tensor flat = outputs.to(at::kDouble).flatten();
  return flat.mul(at::arange(1, flat.numel() + 1, flat.options()).sin()).sum();
}

// Compares the gradient of `value` with respect to some elements of `tensor`.
inline void compare_gradient(const std::function<double()>& value, const at::Tensor& tensor,
                             const at::Tensor& gradient, const std::string& name,
                             const GradientCheck& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor elements = tensor.detach().view({-1});
  const int64_t count = std::min(options.max_elements, elements.numel());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * elements.numel() / count;
    at::Tensor element = elements[at];
    const double before = element.item<double>();
    element.fill_(before + options.eps);
    const double above = value();
    element.fill_(before - options.eps);
    const double below = value();
    element.fill_(before);
    const double expected = (above - below) / (2 * options.eps);
    const double actual = gradient.defined() ? gradient.view({-1})[at].item<double>() : 0.0;
    if (std::abs(actual - expected) <= options.atol + options.rtol * std::abs(expected)) continue;
    std::ostringstream text;
    text.precision(9);
    text << "gradient of " << name << " at flat index " << at << " is " << actual
         << ", finite differences give " << expected;
    throw Failure(text.str());
  }
}

}  // namespace internal

// Compares the gradients of forward() with central differences, for every trainable parameter and,
// unless it is tokens, the input. In eval mode and F64; the model is unchanged afterwards, except
// for its gradients, which are removed.
inline void expect_gradients(plugin::Model& model, const at::Tensor& input,
                             const GradientCheck& options = {}) {
  const internal::InDouble in_double(model);
  const bool has_tokens = !input.is_floating_point();
  at::Tensor x = has_tokens ? input : input.detach().to(at::kDouble).contiguous().clone();
  if (!has_tokens) x.requires_grad_();
  const auto value = [&] { return internal::weighted_sum(model.forward(x)).item<double>(); };
  at::Tensor loss;
  {
    const at::AutoGradMode with_grad(true);
    loss = internal::weighted_sum(model.forward(x));
    if (loss.item<double>() != value())
      throw Failure("forward() returns different outputs for the same input in eval mode");
    loss.backward();
  }
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad())
      internal::compare_gradient(value, item.value(), item.value().grad(), item.key(), options);
  if (!has_tokens) internal::compare_gradient(value, x, x.grad(), "the input", options);
}

// ---- Save and load

using Factory = std::function<std::shared_ptr<plugin::Model>(const plugin::ModelSpec&)>;

namespace internal {

// By name, as a checkpoint.
template <typename Tensors>
void copy_tensors(const Tensors& from, Tensors to) {
  for (const auto& item : from) {
    at::Tensor* const target = to.find(item.key());
    if (target == nullptr || target->sizes() != item.value().sizes())
      throw Failure(item.key() + " differs between two models of the same factory");
    target->copy_(item.value());
  }
}

}  // namespace internal

// Saves the parameters and buffers of one model and loads them into another one of the same
// factory: both must then compute the same outputs, bit for bit. Fails if the outputs depend on a
// tensor that is not registered, which no checkpoint would contain.
inline void expect_save_load_round_trip(const Factory& make, const plugin::ModelSpec& spec,
                                        const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  const auto saved = make(spec), loaded = make(spec);
  internal::copy_tensors(saved->named_parameters(), loaded->named_parameters());
  internal::copy_tensors(saved->named_buffers(), loaded->named_buffers());
  saved->eval();
  loaded->eval();
  expect_all_close(loaded->forward(input), saved->forward(input), 0, 0,
                   "outputs after saving and loading");
}

// ---- Learning

struct LearningCheck {
  int64_t batch_size = 16;
  int64_t passes = 30;
  double lr = 0.01;                // of Adam
  double max_loss_fraction = 0.5;  // of the last pass, relative to the first
};

namespace internal {

constexpr int64_t kBatches = 10;

// A simple rule: a label is the largest of `outputs` fixed linear functions of the sample or step,
// of tokens the token itself.
inline at::Tensor make_labels(const at::Tensor& input, int64_t outputs, bool per_step) {
  if (!input.is_floating_point()) return (per_step ? input : input.select(1, 0)).remainder(outputs);
  const at::Tensor features = per_step ? input : input.flatten(1);
  const at::Tensor weights = at::arange(features.size(-1) * outputs, features.options())
                                 .add(1)
                                 .mul(12.9898)
                                 .sin()
                                 .view({features.size(-1), outputs});
  return at::matmul(features, weights);
}

inline at::Tensor loss_of(const at::Tensor& outputs, const at::Tensor& input) {
  const bool per_step = outputs.dim() == 3;
  const int64_t width = outputs.size(-1);
  const at::Tensor target = make_labels(input, width, per_step);
  const at::Tensor logits = outputs.reshape({-1, width}).to(at::kFloat);
  if (width == 1) return at::mse_loss(logits, target.to(at::kFloat).reshape({-1, 1}));
  const at::Tensor labels = target.is_floating_point() ? target.argmax(-1) : target;
  return at::cross_entropy_loss(logits, labels.reshape({-1}));
}

}  // namespace internal

// Trains the model on ten batches of random numbers or tokens with labels that follow a simple
// rule, and expects the loss to fall: by default to half in 30 passes. Seeds LibTorch's default
// generator, so that the result does not depend on earlier random numbers.
inline void expect_learns_ten_batches(plugin::Model& model, const plugin::ModelSpec& spec,
                                      const LearningCheck& options = {}) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(1);
  std::vector<int64_t> shape{options.batch_size};
  shape.insert(shape.end(), spec.input_shape.begin(), spec.input_shape.end());
  std::vector<at::Tensor> batches;
  for (int64_t i = 0; i < internal::kBatches; ++i)
    batches.push_back(spec.has_tokens ? at::randint(spec.num_classes, shape, at::kLong)
                                      : at::randn(shape));
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(options.lr));
  model.train();
  double first = 0, last = 0;
  for (int64_t pass = 0; pass < options.passes; ++pass) {
    last = 0;
    for (const at::Tensor& batch : batches) {
      optimizer.zero_grad();
      const at::Tensor loss = internal::loss_of(model.forward(batch), batch);
      loss.backward();
      optimizer.step();
      last += loss.item<double>() / static_cast<double>(internal::kBatches);
    }
    if (pass == 0) first = last;
  }
  if (last <= first * options.max_loss_fraction) return;  // false for NaN
  std::ostringstream text;
  text << "loss is " << last << " after " << options.passes << " passes over ten batches, " << first
       << " in the first; expected at most " << first * options.max_loss_fraction;
  throw Failure(text.str());
}

}  // namespace stoker::testing
