#include "daemon/app/version.h"

#include <torch/version.h>

#include "shared/base/build_info.h"

namespace stoker::app {

std::string stoker_version() { return STOKER_VERSION; }
std::string torch_version() { return TORCH_VERSION; }
std::string format_version() {
  return version_text("stokerd", "(LibTorch " + torch_version() + ")") + "\nCUDA      " +
         (STOKER_HAS_CUDA_MODULE ? "yes" : "no") +
         (STOKER_HAS_CUDA_MODULE && STOKER_HAS_CUDA_KERNELS ? ", with fused kernels" : "");
}

}  // namespace stoker::app
