// text_check: whether bytes may be shown to the YAML parser at all.
//
// YAML forbids control characters; the parser takes one of them (0x04) for the end of the file, and
// would read less than the user wrote.
//
// Threads: any; no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shared/config/mistakes.h"

namespace stoker::config {

struct TextTrouble {
  Place place;
  std::string what;
};

// The first byte that is not text: NUL, another control character, invalid UTF-8.
std::optional<TextTrouble> check_text(std::string_view text);

}  // namespace stoker::config
