// quote_for_message(): input from a peer in a short and printable form for a message.
//
// Threads: a function of its argument.
#pragma once

#include <string>
#include <string_view>

namespace stoker::control {

std::string quote_for_message(std::string_view text);

}  // namespace stoker::control
