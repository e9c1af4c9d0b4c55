#include "daemon/cuda/fused_kernels.h"

#ifdef STOKER_CUDA_KERNELS

#include <cuda_runtime_api.h>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "daemon/cuda/kernels/launch.h"

namespace stoker::cuda {
namespace {

constexpr int kMinMajor =
    8;  // of the compute capability: the oldest that the kernels are compiled for

void adamw(const model::AdamwTensor* tensors, int64_t count, const model::AdamwOptions& options) {
  C10_CUDA_CHECK(submit_adamw(tensors, count, options, c10::cuda::getCurrentCUDAStream()));
}

template <auto kSubmit, typename Arguments>
void submit(const Arguments& arguments) {
  C10_CUDA_CHECK(kSubmit(arguments, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace

FusedKernels fused_kernels(int device) {
  static const model::KernelTable table{.adamw = adamw,
                                        .cross_entropy = submit<submit_cross_entropy>,
                                        .gelu = submit<submit_gelu>,
                                        .gelu_backward = submit<submit_gelu_backward>,
                                        .norm = submit<submit_norm>,
                                        .norm_backward = submit<submit_norm_backward>,
                                        .swiglu = submit<submit_swiglu>,
                                        .swiglu_backward = submit<submit_swiglu_backward>,
                                        .rope = submit<submit_rope>};
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major < kMinMajor)
    return {.reason = "the device has compute capability " + std::to_string(major) +
                      ".x; the kernels need 8.0 or later"};
  return {.maybe_table = &table, .reason = ""};
}

}  // namespace stoker::cuda

#else

namespace stoker::cuda {

FusedKernels fused_kernels(int /*device*/) {
  return {.reason = "this build has none; install nvcc (scripts/deps.sh --nvcc) and build again"};
}

}  // namespace stoker::cuda

#endif
