#include "daemon/train/training_error.h"

#include <algorithm>
#include <new>
#include <system_error>

#include <c10/util/Exception.h>

#include "shared/base/exception_status.h"
#include "shared/base/number_format.h"
#include "shared/model/torch_status.h"

namespace stoker::train {
namespace {

constexpr size_t kMaxText = 800;  // bytes of the allocator's summary

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > kMaxText) text.resize(kMaxText);
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

uint64_t size_in_bytes(const model::NamedTensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace

Status to_status(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return Status(StatusCode::kOutOfMemory, "the host has no memory left");
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) return stoker::to_status(error);
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
  // After an error of CUDA, further lines explain how to debug kernels.
  const bool is_of_cuda = dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
  if (model::is_too_small_batch(error))
    return Status(StatusCode::kInvalidArgument,
                  on_one_line(model::first_line(text)) +
                      ": batch_norm has no variance of one value; raise train.micro_batch_size, or "
                      "use a model without batch_norm");
  return Status(model::code_of(error), is_of_cuda ? model::first_line(text) : on_one_line(text));
}

std::string memory_usage(TrainingState& state, uint64_t tree_bytes) {
  std::string text = "the model uses " +
                     format_mib(size_in_bytes(model::named_tensors(state.model()))) +
                     ", its gradients " + format_mib(state.optimizer().gradient_bytes()) +
                     ", the optimizer " + format_mib(size_in_bytes(state.optimizer().state()));
  if (tree_bytes > 0) text += ", distributed.reduction: ordered " + format_mib(tree_bytes);
  if (state.ema_weights() != nullptr)
    text += ", the average " + format_mib(size_in_bytes(state.ema_weights()->tensors()));
  return text + ", the rest is the batch and its activations";
}

std::string memory_saving_hints(const config::Config& config) {
  const config::TrainConfig& train = config.train;
  std::string text;
  const int64_t batch = train.micro_batch_size;
  if (batch > 1) {
    const int64_t parts = batch % 2 == 0 ? 2 : batch;
    text = "train.micro_batch_size: " + std::to_string(batch / parts) +
           " with train.gradient_accumulation_steps: " +
           std::to_string(train.gradient_accumulation_steps * parts) +
           " is the same step in less memory (a started run continues this way with "
           "--allow-batch-change)";
  }
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  const bool can_checkpoint = std::visit(
      [](const auto& model) {
        if constexpr (requires { model.has_blocks(); })
          if (!model.has_blocks()) return false;
        if constexpr (requires { model.activation_checkpointing; })
          return !model.activation_checkpointing;
        return false;
      },
      config.model.arch);
  if (can_checkpoint) add("model.activation_checkpointing: true stores fewer activations");
  if (train.precision == config::Precision::kFp32 || train.precision == config::Precision::kTf32)
    add("train.precision: bf16 halves most activations");
  return text.empty() ? "only a smaller model uses less memory" : text;
}

}  // namespace stoker::train
