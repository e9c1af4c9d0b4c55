// quoted(): what a peer sent, fit to stand in a message: short, and printable.
//
// Threads: a function of its argument.
#pragma once

#include <string>
#include <string_view>

namespace stoker::control {

std::string quoted(std::string_view text);

}  // namespace stoker::control
