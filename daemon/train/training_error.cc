#include "daemon/train/training_error.h"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include <c10/util/Exception.h>

#include "shared/base/number_format.h"
#include "shared/model/out_of_vocab.h"

namespace stoker::train {
namespace {

constexpr size_t kMaxText = 800;  // bytes of the allocator's summary

// Messages of LibTorch's allocators and of the CUDA libraries that are not an OutOfMemoryError.
constexpr std::array<std::string_view, 5> kOutOfMemory{"can't allocate memory", "not enough memory",
                                                       "out of memory", "CUDNN_STATUS_ALLOC_FAILED",
                                                       "CUBLAS_STATUS_ALLOC_FAILED"};
// Values of cudaError_t (driver_types.h) after which the device is unusable until a restart.
// cudaErrorAssert (710) is one too, but a restart would fail again.
constexpr std::array<int32_t, 10> kDeviceLostCodes{
    46,   // cudaErrorDevicesUnavailable
    214,  // cudaErrorECCUncorrectable
    700,  // cudaErrorIllegalAddress
    702,  // cudaErrorLaunchTimeout
    714,  // cudaErrorHardwareStackError
    715,  // cudaErrorIllegalInstruction
    716,  // cudaErrorMisalignedAddress
    717,  // cudaErrorInvalidAddressSpace
    718,  // cudaErrorInvalidPc
    719,  // cudaErrorLaunchFailure
};
constexpr int32_t kOutOfMemoryCode = 2;  // cudaErrorMemoryAllocation
// cuBLAS and cuDNN report a lost device without its code.
constexpr std::array<std::string_view, 4> kDeviceLost{
    "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_MAPPING_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_MAPPING_ERROR"};

bool contains_any(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

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
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      on_one_line(torch != nullptr ? torch->what_without_backtrace() : error.what());
  if (dynamic_cast<const model::OutOfVocabError*>(&error) != nullptr)
    return Status(StatusCode::kMismatch, text);
  const auto* const accelerator = dynamic_cast<const c10::AcceleratorError*>(&error);
  const int32_t code = accelerator != nullptr ? accelerator->get_error_code() : 0;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || code == kOutOfMemoryCode ||
      contains_any(text, kOutOfMemory))
    return Status(StatusCode::kOutOfMemory, text);
  if (std::ranges::find(kDeviceLostCodes, code) != kDeviceLostCodes.end() ||
      contains_any(text, kDeviceLost))
    return Status(StatusCode::kDeviceLost, text);
  return Status(StatusCode::kInternal, text);
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
