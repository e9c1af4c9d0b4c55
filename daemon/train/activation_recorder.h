// ActivationRecorder: what the modules of a model give back during one forward pass.
//
// The models know nothing of it. While it watches, LibTorch tells it of each operator that runs on
// this thread; one that takes a parameter of a module, or a view of it, and makes something new of
// it gives that module's output: a convolution of its weight, a batch norm of its scale, an LSTM of
// its first. Where another operator takes another of its parameters, as the sum with a bias after a
// product does, that is the output instead. So modules without parameters of their own have none
// here, and what a module does more than once in a pass counts the first time.
//
// Threads: one, which is the one that calls the model.
// Owner:   the model must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "shared/model/model.h"

namespace stoker::train {

// The modules with parameters of their own, in the order of the model.
std::vector<std::string> module_names(const model::Model& model);

class ActivationRecorder {
 public:
  // `see` must copy what it wants to keep: what follows may change the output in place. Where it is
  // called for a module again, that replaces what it was given before. What it throws, LibTorch
  // logs.
  using OnOutput = std::function<void(const std::string& module, const at::Tensor& output)>;

  explicit ActivationRecorder(const model::Model& model);
  ~ActivationRecorder() { stop(); }
  ActivationRecorder(const ActivationRecorder&) = delete;
  ActivationRecorder& operator=(const ActivationRecorder&) = delete;

  void start(OnOutput see);
  void stop() noexcept;

 private:
  struct Call;
  struct Owner {
    std::string module;
    const c10::TensorImpl* parameter = nullptr;
  };
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);
  const Owner* find_owner(const at::Tensor& tensor) const;
  std::unique_ptr<Call> find_module_call(const at::RecordFunction& call) const;

  std::unordered_map<const c10::TensorImpl*, Owner> owners_;  // of the parameters
  OnOutput on_output_;
  // In this pass: views of parameters, and which parameters were taken.
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, Owner>> views_;
  std::set<const c10::TensorImpl*> taken_;
  at::CallbackHandle handle_ = 0;
  bool watching_ = false;
  bool inside_ = false;  // an operator of a module, or see_
};

}  // namespace stoker::train
