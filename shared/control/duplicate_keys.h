// has_duplicate_keys: whether an object of a JSON text has the same key twice.
//
// Boost.JSON uses the last one, another parser might use the first. `{"lr":1e-4,"lr":1}` must not
// mean different things to a program that checked a request and to this one.
//
// Threads: any; a function of its argument.
#pragma once

#include <string_view>

namespace stoker::control {

// `text` is one JSON value that has been parsed already, with a depth of at most `max_depth`.
bool has_duplicate_keys(std::string_view text, int max_depth);

}  // namespace stoker::control
