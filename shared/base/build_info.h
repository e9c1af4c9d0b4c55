// build_info: the version of stoker and facts of this build, for --version.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace stoker {

// "stokerd 0.1.0 DETAIL", then one line each with commit, compiler and type of the build.
std::string version_text(std::string_view program, std::string_view detail = {});

}  // namespace stoker
