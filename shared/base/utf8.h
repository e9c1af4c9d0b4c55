// UTF-8 text, one character at a time, and the text of messages.
//
// Threads: functions of their arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stoker {

// Length in bytes of the character at the start of `text`; 0 if it is empty or not valid (overlong
// forms and surrogates are not).
size_t utf8_character_bytes(std::string_view text);

// `text` with each byte that is not part of a valid character replaced by U+FFFD. JSON parsers and
// TensorBoard reject a complete record if its text is not valid UTF-8.
std::string valid_utf8(std::string_view text);

// `text` with each byte that is not part of a valid character as "\xE9", so that different names stay
// different.
std::string escape_invalid_utf8(std::string_view text);

// Whether a valid character can change how a terminal or viewer shows other text: C0 and C1
// controls, DEL, the line and paragraph separators, and bidirectional marks, embeddings, overrides
// and isolates.
bool is_control_character(std::string_view character);

// Untrusted text (a file name, an error message), with control characters and bytes that are not
// UTF-8 replaced by '?', so that it cannot move the cursor, change colors of the terminal or reverse
// the order of other text.
std::string printable(std::string_view text);

// The same for text of several lines: line breaks stay, and each line after the first starts with
// `indent`, so that it cannot be mistaken for a line of the program itself.
std::string printable_lines(std::string_view text, std::string_view indent = {});

// A JSON text with the control characters of its strings as \uXXXX: it has the same value. Line
// breaks stay.
std::string printable_json(std::string_view json);

// The same in single quotes, truncated to `max_bytes` bytes.
std::string quote_for_message(std::string_view text, size_t max_bytes = 40);

std::string join(const std::vector<std::string>& words, std::string_view separator);

}  // namespace stoker
