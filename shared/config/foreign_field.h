// Fields of a JSON file of another program: errors in them, and numbers as text.
//
// Threads: functions of their arguments.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::config {

// Thrown while such a file is read, whose path its reader adds. kInvalidArgument: the value is not
// supported; kCorrupt: it is none.
struct FieldError {
  StatusCode code;
  std::string message;
};

[[noreturn]] inline void reject_field(std::string_view field, const std::string& what,
                                      StatusCode code = StatusCode::kInvalidArgument) {
  throw FieldError{code, "'" + std::string(field) + "' " + what};
}

// The shortest text that is read as the same number.
inline std::string setting_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace stoker::config
