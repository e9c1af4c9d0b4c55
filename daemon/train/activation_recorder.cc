#include "daemon/train/activation_recorder.h"

#include <utility>

#include <ATen/core/ivalue.h>

namespace stoker::train {
namespace {

// RecordFunction callbacks are plain functions, so the recorder of a thread is found through this
// pointer. A thread has at most one active recorder.
thread_local ActivationRecorder* recorder_of_thread = nullptr;

const at::Tensor* find_first_tensor(const std::vector<c10::IValue>& outputs) {
  if (outputs.empty() || !outputs.front().isTensor()) return nullptr;
  return &outputs.front().toTensor();
}

// Includes the tensors of a list, because an LSTM passes its parameters as a list.
std::vector<at::Tensor> list_tensors(const c10::IValue& input) {
  if (input.isTensor()) return {input.toTensor()};
  if (input.isTensorList()) return input.toTensorVector();
  return {};
}

}  // namespace

std::vector<std::string> module_names(const model::Model& model) {
  std::vector<std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    if (!module.value()->parameters(/*recurse=*/false).empty()) names.push_back(module.key());
  }
  return names;
}

// State that on_start() passes to on_end().
struct ActivationRecorder::Call : at::ObserverContext {
  Owner owner;
  at::Tensor parameter;                                // as passed to the operator
  std::vector<const c10::TensorImpl*> new_parameters;  // parameters first used by this operator
};

ActivationRecorder::ActivationRecorder(const model::Model& model) {
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    for (const auto& parameter : module.value()->parameters(/*recurse=*/false)) {
      owners_.try_emplace(parameter.unsafeGetTensorImpl(),
                          Owner{module.key(), parameter.unsafeGetTensorImpl()});
    }
  }
}

void ActivationRecorder::start(OnOutput see) {
  stop();
  on_output_ = std::move(see);
  recorder_of_thread = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  watching_ = true;
}

void ActivationRecorder::stop() noexcept {
  if (!std::exchange(watching_, false)) return;
  at::removeCallback(handle_);
  recorder_of_thread = nullptr;
  in_operator_ = false;
  views_.clear();
  used_parameters_.clear();
}

const ActivationRecorder::Owner* ActivationRecorder::find_owner(const at::Tensor& tensor) const {
  if (!tensor.defined()) return nullptr;
  const auto owned = owners_.find(tensor.unsafeGetTensorImpl());
  if (owned != owners_.end()) return &owned->second;
  const auto view = views_.find(tensor.unsafeGetTensorImpl());
  return view != views_.end() ? &view->second.second : nullptr;
}

std::unique_ptr<ActivationRecorder::Call> ActivationRecorder::find_module_call(
    const at::RecordFunction& call) const {
  std::unique_ptr<Call> known;
  for (const c10::IValue& input : call.inputs()) {
    for (const at::Tensor& tensor : list_tensors(input)) {
      const Owner* const owner = find_owner(tensor);
      if (owner == nullptr) continue;
      if (known == nullptr) {
        known = std::make_unique<Call>();
        known->owner = *owner;
        known->parameter = tensor;
      }
      if (!used_parameters_.contains(owner->parameter))
        known->new_parameters.push_back(owner->parameter);
    }
  }
  return known;
}

std::unique_ptr<at::ObserverContext> ActivationRecorder::on_start(const at::RecordFunction& call) {
  ActivationRecorder* const recorder = recorder_of_thread;
  if (recorder == nullptr || recorder->in_operator_) return nullptr;
  auto known = recorder->find_module_call(call);
  recorder->in_operator_ = known != nullptr;  // until on_end(): nested operators are not outputs
  return known;
}

void ActivationRecorder::on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  ActivationRecorder* const recorder = recorder_of_thread;
  const auto* const known = static_cast<const Call*>(context);
  if (recorder == nullptr || known == nullptr) return;
  struct Leave {
    ActivationRecorder* recorder;
    ~Leave() { recorder->in_operator_ = false; }
  } const leave{recorder};
  const std::vector<c10::IValue> outputs = call.outputs();
  const at::Tensor* const output = find_first_tensor(outputs);
  if (output == nullptr || !output->defined()) return;
  if (output->is_alias_of(known->parameter)) {
    recorder->views_.try_emplace(output->unsafeGetTensorImpl(), *output, known->owner);
    return;
  }
  if (known->new_parameters.empty()) return;
  recorder->used_parameters_.insert(known->new_parameters.begin(), known->new_parameters.end());
  recorder->on_output_(known->owner.module, *output);
}

}  // namespace stoker::train
