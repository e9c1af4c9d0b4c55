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
class GeneratorState {
 public:
  explicit GeneratorState(c10::Device device)
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
class GeneratorStateGuard {
 public:
  GeneratorStateGuard(c10::Device device, const at::Tensor& state) : previous_(device) {
    previous_.set(state);
  }
  ~GeneratorStateGuard() { previous_.restore(); }
  GeneratorStateGuard(const GeneratorStateGuard&) = delete;
  GeneratorStateGuard& operator=(const GeneratorStateGuard&) = delete;

 private:
  GeneratorState previous_;
};

// What the recomputation needs to repeat the forward pass.
struct ForwardState : torch::CustomClassHolder {
  FunctionOfSeveral function;
  size_t num_inputs = 1;  // of the tensors, that function() gets; the rest are parameters
  std::optional<at::Tensor> generator_state;
  std::optional<at::ScalarType> autocast;
};

// Disables the autocast cache: a cached low-precision weight created without a graph must not be
// reused where a graph is needed.
class AutocastCacheDisabledScope {
 public:
  AutocastCacheDisabledScope() : was_enabled_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastCacheDisabledScope() { at::autocast::set_autocast_cache_enabled(was_enabled_); }
  AutocastCacheDisabledScope(const AutocastCacheDisabledScope&) = delete;
  AutocastCacheDisabledScope& operator=(const AutocastCacheDisabledScope&) = delete;

 private:
  const bool was_enabled_;
};

class CheckpointFunction : public torch::autograd::Function<CheckpointFunction> {
 public:
  // `inputs`: the input, then the parameters. apply() does not find tensors inside a std::vector.
  static at::Tensor forward(AutogradContext* context, c10::intrusive_ptr<ForwardState> state,
                            at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    const AutocastCacheDisabledScope no_cache;
    return state->function({inputs.begin(), inputs.begin() + state->num_inputs});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list inputs = context->get_saved_variables();
    const auto capsule = context->saved_data["state"].toCapsule();
    const auto& state = static_cast<const ForwardState&>(*capsule);
    variable_list leaves = inputs;
    for (size_t i = 0; i < state.num_inputs; ++i)
      leaves[i] = inputs[i].detach().requires_grad_(inputs[i].requires_grad());
    at::Tensor output;
    {
      const at::AutoGradMode with_graph(true);
      const Autocast autocast(state.autocast, leaves.front().device().type());
      std::optional<GeneratorStateGuard> generator_state;
      if (state.generator_state)
        generator_state.emplace(leaves.front().device(), *state.generator_state);
      output = state.function(
          {leaves.begin(), leaves.begin() + static_cast<ptrdiff_t>(state.num_inputs)});
    }
    return differentiate(output, leaves, gradients.front());
  }

 private:
  static variable_list differentiate(const at::Tensor& output, const variable_list& leaves,
                                     const at::Tensor& gradient) {
    variable_list differentiable;
    for (const at::Tensor& leaf : leaves)
      if (leaf.requires_grad()) differentiable.push_back(leaf);
    const variable_list computed = torch::autograd::grad({output}, differentiable, {gradient});
    variable_list argument_gradients(1);  // no gradient for `state`
    for (size_t i = 0, next = 0; i < leaves.size(); ++i)
      argument_gradients.push_back(leaves[i].requires_grad() ? computed[next++] : at::Tensor());
    return argument_gradients;
  }
};

at::Tensor apply(FunctionOfSeveral function, size_t num_inputs,
                 const std::vector<at::Tensor>& tensors, bool uses_random) {
  auto state = c10::make_intrusive<ForwardState>();
  state->function = std::move(function);
  state->num_inputs = num_inputs;
  const c10::Device device = tensors.front().device();
  if (uses_random) state->generator_state = GeneratorState(device).state();
  if (at::autocast::is_autocast_enabled(device.type()))
    state->autocast = at::autocast::get_autocast_dtype(device.type());
  return CheckpointFunction::apply(std::move(state), at::TensorList(tensors));
}

}  // namespace

at::Tensor checkpoint_activations(Function function, const at::Tensor& input,
                                  std::vector<at::Tensor> parameters, bool uses_random) {
  if (!at::GradMode::is_enabled()) return function(input);
  parameters.insert(parameters.begin(), input);
  return apply([function = std::move(function)](const auto& inputs) { return function(inputs[0]); },
               1, parameters, uses_random);
}

at::Tensor checkpoint_activations(FunctionOfSeveral function, const std::vector<at::Tensor>& inputs,
                                  bool uses_random) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  return apply(std::move(function), inputs.size(), inputs, uses_random);
}

}  // namespace stoker::model
