// Sequential: modules one after another, numbered as PyTorch's nn.Sequential numbers them.
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

  // A module of LibTorch's whose forward() goes from a tensor to a tensor.
  template <typename Module>
  void add(const torch::nn::ModuleHolder<Module>& module) {
    add(module.ptr());
  }
  template <typename Module>
  void add(const std::shared_ptr<Module>& module) {
    register_module(std::to_string(steps_.size()), module);
    steps_.push_back([module](const at::Tensor& x) { return module->forward(x); });
  }
  // One whose forward() is another.
  template <typename Module>
  void add(const torch::nn::ModuleHolder<Module>& module, Step step) {
    register_module(std::to_string(steps_.size()), module.ptr());
    steps_.push_back(std::move(step));
  }
  // What has no parameters takes a number all the same.
  void add_step(Step step) { steps_.push_back(std::move(step)); }
  void add_dropout(double part);

  at::Tensor forward(const at::Tensor& input);

 private:
  std::vector<Step> steps_;
};

}  // namespace stoker::model
