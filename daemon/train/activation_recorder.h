// ActivationRecorder: records the outputs of a model's modules during one forward pass.
//
// The models need no hooks. While recording is active, LibTorch reports each operator that runs on
// this thread. If an operator takes a parameter of a module (or a view of one) and produces a new
// tensor, that tensor is recorded as the output of the module: a convolution by its weight, a batch
// norm by its scale, an LSTM by its first parameter. If a later operator takes another parameter of
// the module, as the bias addition after a matrix product does, its result replaces the output.
// Modules without own parameters are therefore not recorded, and if a module runs several times in
// a pass, only its first run is.
//
// Threads:   one, the thread that calls the model.
// Ownership: the model must outlive this object.
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

// The modules that have own parameters, in the model's order.
std::vector<std::string> module_names(const model::Model& model);

class ActivationRecorder {
 public:
  // Must copy what it keeps, because a later operator can change the output in place. A second call
  // for the same module replaces the first output. LibTorch logs exceptions that it throws.
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

  std::unordered_map<const c10::TensorImpl*, Owner> owners_;  // keys: the parameters
  OnOutput on_output_;
  // For this pass: the views of parameters, and the parameters already used by an operator.
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, Owner>> views_;
  std::set<const c10::TensorImpl*> used_parameters_;
  at::CallbackHandle handle_ = 0;
  bool watching_ = false;
  bool in_operator_ = false;  // inside an operator of a module, or in on_output_
};

}  // namespace stoker::train
