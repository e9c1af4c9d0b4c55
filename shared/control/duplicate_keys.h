// has_duplicate_keys: whether an object of a JSON text names a field twice.
//
// Boost.JSON keeps the last of them, another reader might keep the first: `{"lr":1e-4,"lr":1}` must
// not mean different things to whoever checked a request and to us.
//
// Threads: none; a function of its argument.
#pragma once

#include <string_view>

namespace stoker::control {

// `text` is one JSON value that has been parsed already, at most `max_depth` deep.
bool has_duplicate_keys(std::string_view text, int max_depth);

}  // namespace stoker::control
