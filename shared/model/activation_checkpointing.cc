#include "shared/model/activation_checkpointing.h"

#include <mutex>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/autocast.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saves the state of the default generator of a device and restores it.
class Randomness {
 public:
  explicit Randomness(c10::Device device)
      : generator_(at::globalContext().defaultGenerator(device)), state_(current()) {}
  at::Tensor current() const {
    const std::lock_guard lock(generator_.mutex());
    return generator_.get_state();
  }
  void set(const at::Tensor& state) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state);
  }
  void restore() { set(state_); }
  const at::Tensor& state() const { return state_; }

 private:
  mutable at::Generator generator_;  // locking it is a non-const operation
  at::Tensor state_;
};

// Sets the generator to `state` during its lifetime, then restores the previous state.
class DrawnAgain {
 public:
  DrawnAgain(c10::Device device, const at::Tensor& state) : now_(device) { now_.set(state); }
  ~DrawnAgain() { now_.restore(); }
  DrawnAgain(const DrawnAgain&) = delete;
  DrawnAgain& operator=(const DrawnAgain&) = delete;

 private:
  Randomness now_;
};

// What the recomputation needs to repeat the forward pass.
struct First : torch::CustomClassHolder {
  Function function;
  std::optional<at::Tensor> randomness;
  std::optional<at::ScalarType> autocast;
};

// Disables the autocast cache: a cached low-precision weight created without a graph must not be
// reused where a graph is needed.
class NoAutocastCache {
 public:
  NoAutocastCache() : was_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(was_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  const bool was_;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  // `inputs`: the input, then the parameters. apply() does not find tensors inside a std::vector.
  static at::Tensor forward(AutogradContext* context, c10::intrusive_ptr<First> first,
                            at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["first"] = c10::IValue::make_capsule(first);
    const NoAutocastCache no_cache;
    return first->function(inputs.front());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list inputs = context->get_saved_variables();
    const auto capsule = context->saved_data["first"].toCapsule();
    const auto& first = static_cast<const First&>(*capsule);
    variable_list leaves = inputs;
    leaves.front() = inputs.front().detach().requires_grad_(inputs.front().requires_grad());
    at::Tensor output;
    {
      const at::AutoGradMode with_graph(true);
      const Autocast autocast(first.autocast, leaves.front().device().type());
      std::optional<DrawnAgain> drawn_again;
      if (first.randomness) drawn_again.emplace(leaves.front().device(), *first.randomness);
      output = first.function(leaves.front());
    }
    return differentiate(output, leaves, gradients.front());
  }

 private:
  static variable_list differentiate(const at::Tensor& output, const variable_list& leaves,
                                     const at::Tensor& gradient) {
    variable_list wanted;
    for (const at::Tensor& leaf : leaves)
      if (leaf.requires_grad()) wanted.push_back(leaf);
    const variable_list found = torch::autograd::grad({output}, wanted, {gradient});
    variable_list of_arguments(1);  // no gradient for `first`
    for (size_t i = 0, next = 0; i < leaves.size(); ++i)
      of_arguments.push_back(leaves[i].requires_grad() ? found[next++] : at::Tensor());
    return of_arguments;
  }
};

}  // namespace

at::Tensor checkpoint_activations(Function function, const at::Tensor& input,
                                  std::vector<at::Tensor> parameters, bool uses_random) {
  if (!at::GradMode::is_enabled()) return function(input);
  auto first = c10::make_intrusive<First>();
  first->function = std::move(function);
  const c10::DeviceType device = input.device().type();
  if (uses_random) first->randomness = Randomness(input.device()).state();
  if (at::autocast::is_autocast_enabled(device))
    first->autocast = at::autocast::get_autocast_dtype(device);
  parameters.insert(parameters.begin(), input);
  return Recomputed::apply(std::move(first), at::TensorList(parameters));
}

}  // namespace stoker::model
