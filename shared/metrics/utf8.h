// Text that other programs read as UTF-8 must be UTF-8: JSON readers and TensorBoard refuse the
// whole record otherwise.
#pragma once

#include <string>
#include <string_view>

namespace stoker::metrics {

// `text` with each byte that is not part of a valid character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace stoker::metrics
