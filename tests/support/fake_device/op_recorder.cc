#include "tests/support/fake_device/op_recorder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace stoker::fake_device {
namespace {

thread_local OperatorHook* hook = nullptr;

// Operators whose result depends on values that the host must know.
constexpr std::array<std::string_view, 6> kReadBack{
    "aten::_local_scalar_dense", "aten::nonzero", "aten::equal",
    "aten::is_nonzero",          "aten::item",    "aten::masked_select"};

at::Generator generator() { return at::globalContext().defaultGenerator(at::kCPU); }

// The same memory and metadata without references to autograd, which a graph does not have.
at::Tensor without_autograd(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/0, /*allow_tensor_metadata_change=*/false));
}

c10::IValue without_autograd(const c10::IValue& value) {
  if (value.isTensor()) return without_autograd(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector())
      list.push_back(without_autograd(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(without_autograd(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().has_storage()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined() && tensor.has_storage()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined() && tensor->has_storage()) visit(*tensor);
  }
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// Batch norm updates its statistics, which its schema does not say.
bool writes(const c10::FunctionSchema& schema, size_t argument) {
  if (schema.name() == "aten::native_batch_norm") return argument == 3 || argument == 4;
  const auto* const alias = schema.arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

void poison(const c10::Storage& storage) {
  std::memset(storage.mutable_data(), 0xff, storage.nbytes());
}

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard without(c10::DispatchKey::Fake);
  const auto below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  if (hook != nullptr)
    hook->on_operator(op, below, *stack);
  else
    op.redispatchBoxed(below, stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
}

}  // namespace

void call_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) {
  op.redispatchBoxed(keys, &stack);
}

void submit_kernel(const std::function<void()>& kernel) {
  if (hook != nullptr)
    hook->on_kernel(kernel);
  else
    kernel();
}

OperatorInterception::OperatorInterception(OperatorHook& target)
    : include_(c10::DispatchKey::Fake) {
  hook = &target;
}

OperatorInterception::~OperatorInterception() { hook = nullptr; }

void OpRecorder::begin() {
  at::Generator random = generator();
  const std::lock_guard lock(random.mutex());
  generator_ = random.get_state();
}

void OpRecorder::end() {
  for (const auto& [storage, bytes] : before_)
    std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  before_.clear();
  saved_.clear();
  at::Generator random = generator();
  const std::lock_guard lock(random.mutex());
  random.set_state(generator_);
}

void OpRecorder::save_before_write(const c10::IValue& argument) {
  for_each_tensor(argument, [this](const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    if (own_storages_.contains(storage_of(tensor)) || !saved_.insert(storage_of(tensor)).second)
      return;
    const auto* const bytes = static_cast<const std::byte*>(storage.data());
    before_.emplace_back(storage, std::vector<std::byte>(bytes, bytes + storage.nbytes()));
  });
}

void OpRecorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  TORCH_CHECK(std::ranges::find(kReadBack, schema.name()) == kReadBack.end(),
              "CUDA error: operation not permitted when stream is capturing (", schema.name(), ")");
  const size_t count = schema.arguments().size();
  const size_t first = stack.size() - count;
  Recorded recorded{.op = op, .arguments = {}, .results = {}};
  std::set<const c10::StorageImpl*> known;
  bool is_write = false;
  for (size_t i = 0; i < count; ++i) {
    recorded.arguments.push_back(without_autograd(stack[first + i]));
    for_each_tensor(stack[first + i],
                    [&](const at::Tensor& tensor) { known.insert(storage_of(tensor)); });
    if (!writes(schema, i)) continue;
    is_write = true;
    save_before_write(stack[first + i]);
  }
  call_kernel(op, keys, stack);
  size_t position = 0;
  for (size_t i = first; i < stack.size(); ++i)
    for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      const size_t at = position++;
      if (known.contains(storage_of(tensor))) return;
      recorded.results.emplace_back(at, without_autograd(tensor));
      if (own_storages_.insert(storage_of(tensor)).second) storages_.push_back(tensor.storage());
    });
  // Views and allocations have no kernel.
  const bool allocates =
      schema.name().starts_with("aten::empty") || schema.name().starts_with("aten::new_empty");
  if (is_write || (!recorded.results.empty() && !allocates)) ops_.emplace_back(std::move(recorded));
}

void OpRecorder::run(const Recorded& recorded) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack(recorded.arguments.begin(), recorded.arguments.end());
  recorded.op.callBoxed(&stack);
  size_t position = 0;
  auto expected = recorded.results.begin();
  for (const c10::IValue& value : stack)
    for_each_tensor(value, [&](const at::Tensor& result) {
      const size_t at = position++;
      if (expected == recorded.results.end() || expected->first != at) return;
      const at::Tensor& target = (expected++)->second;
      TORCH_INTERNAL_ASSERT(target.strides() == result.strides() &&
                            target.nbytes() == result.nbytes());
      std::memcpy(target.storage().mutable_data(), result.storage().data(),
                  std::min(target.storage().nbytes(), result.storage().nbytes()));
    });
}

void OpRecorder::poison_results() {
  for (const c10::Storage& storage : storages_) poison(storage);
}

uint64_t OpRecorder::bytes() const {
  uint64_t bytes = 0;
  for (const c10::Storage& storage : storages_) bytes += storage.nbytes();
  return bytes;
}

}  // namespace stoker::fake_device
