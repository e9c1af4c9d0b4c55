#include "daemon/app/version.h"

#include <torch/version.h>

namespace stoker::app {

std::string stoker_version() { return STOKER_VERSION; }
std::string torch_version() { return TORCH_VERSION; }
std::string format_version() {
  return "stokerd " + stoker_version() + " (LibTorch " + torch_version() + ")";
}

}  // namespace stoker::app
