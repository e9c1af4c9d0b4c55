// Sequential: a chain of modules, numbered as in PyTorch's nn.Sequential.
//
// Threads: as torch::nn::Module: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace stoker::model {

class Sequential : public torch::nn::Module {
 public:
  using Step = std::function<at::Tensor(const at::Tensor&)>;

  // Adds a LibTorch module whose forward() maps a tensor to a tensor.
  template <typename Module>
  void add(const torch::nn::ModuleHolder<Module>& module) {
    add(module.ptr());
  }
  template <typename Module>
  void add(const std::shared_ptr<Module>& module) {
    register_module(std::to_string(steps_.size()), module);
    steps_.push_back([module](const at::Tensor& x) { return module->forward(x); });
  }
  // Adds a module that is called through `step`, for other signatures of forward().
  template <typename Module>
  void add(const torch::nn::ModuleHolder<Module>& module, Step step) {
    register_module(std::to_string(steps_.size()), module.ptr());
    steps_.push_back(std::move(step));
  }
  // Steps without parameters also occupy an index.
  void add_step(Step step) { steps_.push_back(std::move(step)); }
  void add_dropout(double part);

  at::Tensor forward(const at::Tensor& input);

 private:
  std::vector<Step> steps_;
};

}  // namespace stoker::model
