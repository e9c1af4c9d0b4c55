// Versions of this build, for --version, logs and manifests.
#pragma once

#include <string>

namespace stoker::app {

std::string stoker_version();  // "0.1.0"
std::string torch_version();   // "2.11.0": of the LibTorch that it was built with
std::string format_version();  // "stokerd 0.1.0 (LibTorch 2.11.0)" and facts of the build

}  // namespace stoker::app
