#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "shared/config/reader.h"
#include "shared/config/schema.h"

namespace stoker::config {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// A number in JSON syntax; nullopt if `text` is not a number. Integers keep all digits.
std::optional<std::string> number_to_json(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (is_digits(digits) && (digits == "0" || digits[0] != '0')) return std::string(text);
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!is_number || !std::isfinite(number)) return std::nullopt;
  return to_yaml(Target(&number));
}

std::string quote_json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(ConfigErrors& errors) : errors_(errors) {}

  std::string write(const Value& value, const std::string& key) {
    switch (value.type) {
      case Value::Type::kNull:
      case Value::Type::kRemoved:
        return "null";
      case Value::Type::kScalar:
        return write_scalar(value, key);
      case Value::Type::kList:
        return write_list(value, key);
      case Value::Type::kMap:
        return write_map(value, key);
    }
    return "null";
  }

 private:
  std::string write_scalar(const Value& value, const std::string& key) {
    check_text(value.text, value.location, key);
    if (!value.in_quotes) {
      if (value.text == "true" || value.text == "false") return value.text;
      if (auto number = number_to_json(value.text)) return *std::move(number);
    }
    return quote_json(value.text);
  }
  std::string write_list(const Value& value, const std::string& key) {
    std::string out = "[";
    for (size_t i = 0; i < value.items.size(); ++i)
      out += (i > 0 ? ", " : "") + write(value.items[i], key + '[' + std::to_string(i) + ']');
    return out + ']';
  }
  std::string write_map(const Value& value, const std::string& key) {
    std::map<std::string, std::string> items;
    for (const Entry& entry : value.entries) {
      if (entry.value.type == Value::Type::kRemoved) continue;
      check_text(entry.key, entry.location, key);
      items[entry.key] = write(entry.value, key + '.' + entry.key);
    }
    std::string out;
    for (const auto& [name, item] : items)
      out += (out.empty() ? "" : ", ") + quote_json(name) + ": " + item;
    return '{' + out + '}';
  }
  void check_text(const std::string& text, const SourceLocation& location, const std::string& key) {
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::ranges::any_of(text, is_control))
      errors_.add(location, key, "contains a control character; remove it");
  }

  ConfigErrors& errors_;
};

}  // namespace

std::string untyped_map_to_json(const Value& map, const std::string& key, ConfigErrors& errors) {
  return JsonWriter(errors).write(map, key);
}

}  // namespace stoker::config
