#include "tests/support/fake_device/fused_kernels.h"

#include <cstdint>
#include <vector>

#include "daemon/cuda/kernels/host_kernels.h"
#include "tests/support/fake_device/op_recorder.h"

namespace stoker::fake_device {
namespace {

using model::KernelTable;

// The arguments are copied, as a launch copies those of a kernel.
template <auto kKernel, typename Arguments>
void submit(const Arguments& arguments) {
  submit_kernel([arguments] { (cuda::host_kernels().*kKernel)(arguments); });
}

void adamw(const model::AdamwTensor* tensors, int64_t count, const model::AdamwOptions& options) {
  submit_kernel([tensors = std::vector(tensors, tensors + count), options] {
    cuda::host_kernels().adamw(tensors.data(), static_cast<int64_t>(tensors.size()), options);
  });
}

}  // namespace

cuda::FusedKernels fused_kernels(int /*device*/) {
  static const KernelTable table{.adamw = adamw,
                                 .cross_entropy = submit<&KernelTable::cross_entropy>,
                                 .gelu = submit<&KernelTable::gelu>,
                                 .gelu_backward = submit<&KernelTable::gelu_backward>,
                                 .norm = submit<&KernelTable::norm>,
                                 .norm_backward = submit<&KernelTable::norm_backward>,
                                 .swiglu = submit<&KernelTable::swiglu>,
                                 .swiglu_backward = submit<&KernelTable::swiglu_backward>,
                                 .rope = submit<&KernelTable::rope>};
  return {.maybe_table = &table, .reason = ""};
}

}  // namespace stoker::fake_device
