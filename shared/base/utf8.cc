#include "shared/base/utf8.h"

#include <cstdint>
#include <cstdio>

namespace stoker {
namespace {

unsigned byte_at(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
}

// Of a valid character.
uint32_t code_point(std::string_view character) {
  const unsigned first = byte_at(character, 0);
  if (character.size() == 1) return first;
  uint32_t value = first & (0xffu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) value = value << 6 | (byte_at(character, i) & 0x3f);
  return value;
}

}  // namespace

size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto follows = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      if ((byte_at(text, i) & 0xc0) != 0x80) return false;
    return true;
  };
  const unsigned first = byte_at(text, 0), second = byte_at(text, 1);
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

std::string escape_invalid_utf8(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string valid;
  while (!text.empty()) {
    const size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) {
      const auto byte = static_cast<unsigned char>(text.front());
      valid += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      valid += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return valid;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) {
      valid += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      valid += text.substr(0, bytes);
      text.remove_prefix(bytes);
    }
  }
  return valid;
}

bool is_control_character(std::string_view character) {
  const uint32_t code = code_point(character);
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

namespace {

// `replace` returns what stands for a control character, or for a byte that is not UTF-8 (empty).
template <typename Replace>
std::string replace_controls(std::string_view text, const Replace& replace) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid_bytes = utf8_character_bytes(text);
    const std::string_view character = text.substr(0, valid_bytes > 0 ? valid_bytes : 1);
    text.remove_prefix(character.size());
    if (valid_bytes == 0)
      out += replace(std::string_view());
    else if (is_control_character(character))
      out += replace(character);
    else
      out += character;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return replace_controls(text, [](std::string_view) { return "?"; });
}

std::string printable_lines(std::string_view text, std::string_view indent) {
  const bool is_ended = text.ends_with('\n');
  if (is_ended) text.remove_suffix(1);
  std::string out = replace_controls(text, [&](std::string_view character) {
    return character == "\n" ? "\n" + std::string(indent) : "?";
  });
  return is_ended ? out + "\n" : out;
}

std::string printable_json(std::string_view json) {
  return replace_controls(json, [](std::string_view character) -> std::string {
    if (character.empty()) return "?";
    if (character == "\n") return "\n";
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", code_point(character) & 0xffffu);
    return escaped;
  });
}

std::string quote_for_message(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return "'" + printable(text) + "'";
  size_t end = max_bytes;
  const auto is_continuation = [&](size_t i) { return (byte_at(text, i) & 0xc0) == 0x80; };
  while (end > 0 && max_bytes - end < 3 && is_continuation(end)) --end;
  return "'" + printable(text.substr(0, end)) + "…'";
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += separator;
    text += words[i];
  }
  return text;
}

}  // namespace stoker
