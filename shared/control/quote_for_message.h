// quote_for_message(): what a peer sent, fit to stand in a message: short, and printable.
//
// Threads: a function of its argument.
#pragma once

#include <string>
#include <string_view>

namespace stoker::control {

std::string quote_for_message(std::string_view text);

}  // namespace stoker::control
