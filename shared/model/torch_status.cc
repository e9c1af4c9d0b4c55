#include "shared/model/torch_status.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <system_error>

#include "shared/base/exception_status.h"
#include "shared/model/out_of_vocab.h"

namespace stoker::model {
namespace {

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

// Of normalizations over a batch: the variance of one value.
constexpr std::string_view kTooFewValues = "Expected more than 1 value per channel when training";

bool contains_any(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace

bool is_too_small_batch(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
  return text.find(kTooFewValues) != std::string::npos;
}

StatusCode code_of(const std::exception& error) {
  if (dynamic_cast<const OutOfVocabError*>(&error) != nullptr) return StatusCode::kMismatch;
  if (is_too_small_batch(error)) return StatusCode::kInvalidArgument;
  if (dynamic_cast<const std::system_error*>(&error) != nullptr)
    return stoker::to_status(error).code();
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
  const auto* const accelerator = dynamic_cast<const c10::AcceleratorError*>(&error);
  const int32_t code = accelerator != nullptr ? accelerator->get_error_code() : 0;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || code == kOutOfMemoryCode ||
      contains_any(text, kOutOfMemory))
    return StatusCode::kOutOfMemory;
  if (std::ranges::find(kDeviceLostCodes, code) != kDeviceLostCodes.end() ||
      contains_any(text, kDeviceLost))
    return StatusCode::kDeviceLost;
  return StatusCode::kInternal;
}

Status to_status(const c10::Error& error, std::string_view what) {
  return Status(code_of(error),
                std::string(what) + ": " + first_line(error.what_without_backtrace()));
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find('\n'), text.size())));
}

}  // namespace stoker::model
