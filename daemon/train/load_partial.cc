#include "daemon/train/load_partial.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "shared/base/log.h"
#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

constexpr size_t kMaxNamed = 5;

std::string first_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMaxNamed; ++i)
    text += (text.empty() ? "" : ", ") + names[i];
  return names.size() > kMaxNamed ? text + ", …" : text;
}

}  // namespace

Result<bool> load_partial(const model::NamedTensors& tensors,
                          const checkpoint::SafetensorsFile& file, const std::string& owner) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> fresh;
  for (const auto& [name, tensor] : tensors) {
    const TensorSpec needed = model::to_tensor_spec(name, tensor);
    const TensorSpec* const found = file.find(name);
    if (found == nullptr || *found != needed) {
      fresh.push_back(name);
      continue;
    }
    const at::Tensor host =
        at::empty_like(tensor, tensor.options().device(at::kCPU), at::MemoryFormat::Contiguous);
    STOKER_RETURN_IF_ERROR(
        file.read(name, {static_cast<std::byte*>(host.data_ptr()), needed.bytes()}));
    tensor.detach().copy_(host);
  }
  const size_t loaded = tensors.size() - fresh.size();
  const size_t unused = file.tensors().size() - loaded;
  if (fresh.empty() && unused == 0) return true;
  log_warn("checkpoint partially loaded", {{"component", owner},
                                           {"loaded", loaded},
                                           {"missing", fresh.size()},
                                           {"unexpected", unused},
                                           {"first_missing", first_of(fresh)}});
  return false;
}

}  // namespace stoker::train
