#include "daemon/train/output_watch.h"

#include <utility>

#include <ATen/core/ivalue.h>

namespace stoker::train {
namespace {

// Callbacks are plain functions; there is one watch on a thread.
thread_local OutputWatch* watch_of_thread = nullptr;

const at::Tensor* maybe_first_tensor(const std::vector<c10::IValue>& outputs) {
  if (outputs.empty() || !outputs.front().isTensor()) return nullptr;
  return &outputs.front().toTensor();
}

}  // namespace

std::vector<std::string> names_of_modules(const model::Model& model) {
  std::vector<std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    if (!module.value()->parameters(/*recurse=*/false).empty()) names.push_back(module.key());
  }
  return names;
}

// What on_start() tells on_end().
struct OutputWatch::Call : at::ObserverContext {
  const std::string* module = nullptr;
  at::Tensor parameter;
};

OutputWatch::OutputWatch(const model::Model& model) {
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    for (const auto& parameter : module.value()->parameters(/*recurse=*/false))
      modules_.emplace(parameter.unsafeGetTensorImpl(), module.key());
  }
}

void OutputWatch::start(See see) {
  stop();
  see_ = std::move(see);
  seen_.clear();
  watch_of_thread = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  watching_ = true;
}

void OutputWatch::stop() noexcept {
  if (!std::exchange(watching_, false)) return;
  at::removeCallback(handle_);
  watch_of_thread = nullptr;
  inside_ = false;
}

std::unique_ptr<OutputWatch::Call> OutputWatch::maybe_call_of_module(
    const at::RecordFunction& call) const {
  for (const c10::IValue& input : call.inputs()) {
    at::Tensor tensor;
    if (input.isTensor()) tensor = input.toTensor();
    if (input.isTensorList() && !input.toTensorList().empty()) tensor = input.toTensorList().get(0);
    if (!tensor.defined()) continue;
    const auto found = modules_.find(tensor.unsafeGetTensorImpl());
    if (found == modules_.end()) continue;
    auto known = std::make_unique<Call>();
    known->module = &found->second;
    known->parameter = std::move(tensor);
    return known;
  }
  return nullptr;
}

std::unique_ptr<at::ObserverContext> OutputWatch::on_start(const at::RecordFunction& call) {
  OutputWatch* const watch = watch_of_thread;
  if (watch == nullptr || watch->inside_) return nullptr;
  auto known = watch->maybe_call_of_module(call);
  watch->inside_ = known != nullptr;  // until its end: what it is made of is no output
  return known;
}

void OutputWatch::on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  OutputWatch* const watch = watch_of_thread;
  const auto* const known = static_cast<const Call*>(context);
  if (watch == nullptr || known == nullptr) return;
  struct Leave {
    OutputWatch* watch;
    ~Leave() { watch->inside_ = false; }
  } const leave{watch};
  const std::vector<c10::IValue> outputs = call.outputs();
  const at::Tensor* const output = maybe_first_tensor(outputs);
  const bool is_new = output != nullptr && output->defined() && !output->is_alias_of(known->parameter);
  if (is_new && watch->seen_.insert(*known->module).second) watch->see_(*known->module, *output);
}

}  // namespace stoker::train
