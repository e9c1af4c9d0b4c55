#include "daemon/daemon_app/version.h"

#include <torch/version.h>

namespace stoker::daemon_app {

std::string stoker_version() { return STOKER_VERSION; }
std::string torch_version() { return TORCH_VERSION; }
std::string version_text() {
  return "stokerd " + stoker_version() + " (LibTorch " + torch_version() + ")";
}

}  // namespace stoker::daemon_app
