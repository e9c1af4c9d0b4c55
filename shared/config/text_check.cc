#include "shared/config/text_check.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace stoker::config {
namespace {

Place place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {.line = static_cast<int>(lines) + 1, .column = static_cast<int>(offset - line_start) + 1};
}

std::string hex(unsigned char byte) {
  std::array<char, 8> out{};
  std::snprintf(out.data(), out.size(), "0x%02x", byte);
  return out.data();
}

// Bytes of the character that starts `text`, or 0 where UTF-8 has no such character (overlong forms
// and surrogates have none).
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if ((at(i) & 0xc0) != 0x80) return false;
    return true;
  };
  const unsigned first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1, 2) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && second < 0xa0;
    const bool surrogate = first == 0xed && second > 0x9f;
    return !overlong && !surrogate && follows(1, 3) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && second < 0x90;
    const bool beyond = first == 0xf4 && second > 0x8f;
    return !overlong && !beyond && follows(1, 4) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::optional<TextTrouble> check_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
    if (byte == 0) {
      return TextTrouble{place_of(text, at), "a NUL byte; a configuration is text in UTF-8"};
    }
    if (control || byte == 0x7f) {
      return TextTrouble{place_of(text, at), "the control character " + hex(byte) +
                                                 "; remove it (a configuration is text in UTF-8)"};
    }
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) {
      return TextTrouble{place_of(text, at),
                         "the byte " + hex(byte) + " is not UTF-8; save the file as UTF-8"};
    }
    at += bytes;
  }
  return std::nullopt;
}

}  // namespace stoker::config
