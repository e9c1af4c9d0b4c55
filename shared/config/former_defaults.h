// Defaults of earlier releases, which configurations of their runs contain.
#pragma once

#include <string_view>

namespace stoker::config {

inline constexpr std::string_view kFormerDefaultGlob = "**/*";  // of all formats

}  // namespace stoker::config
