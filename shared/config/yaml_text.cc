// A field's value as YAML on one line.
#include <algorithm>
#include <array>
#include <charconv>
#include <variant>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

// Words that YAML 1.1, in which many read, takes for a bool or for nothing.
bool is_yaml_word(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return is_word_of("null true false yes no on off y n", text);
}

// Plain where every YAML reader takes it for this text, else in double quotes.
std::string yaml_of(const std::string& text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto plain = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '/' || c == '.' || c == '-' ||
           c == '+';
  };
  const bool starts_plain = !text.empty() && (letter(text[0]) || text[0] == '/');
  if (starts_plain && !is_yaml_word(text) && std::all_of(text.begin(), text.end(), plain))
    return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}
std::string yaml_of(bool value) { return value ? "true" : "false"; }
template <typename Number>
std::string yaml_of_number(Number value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}
std::string yaml_of(int value) { return yaml_of_number(value); }
std::string yaml_of(int64_t value) { return yaml_of_number(value); }
std::string yaml_of(uint64_t value) { return yaml_of_number(value); }
// With a point before an exponent: YAML 1.1 takes 1e-08 for text.
std::string yaml_of(double value) {
  std::string text = yaml_of_number(value);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}
std::string yaml_of(const std::optional<double>& value) { return value ? yaml_of(*value) : "off"; }
std::string yaml_of(const std::optional<int>& value) { return value ? yaml_of(*value) : "auto"; }
template <typename T>
std::string yaml_of(const std::vector<T>& list) {
  std::string out = "[";
  for (const T& item : list) out += (out.size() > 1 ? ", " : "") + yaml_of(item);
  return out + "]";
}

// Each row with what its kind reads and what differs from a new one: "[{match: "tok.*", lr_scale: 0.1}]".
std::string yaml_of(const Rows& rows) {
  const size_t count = rows.size(rows.target);
  rows.resize(rows.target, count + 1);  // the last is at its defaults
  const std::vector<Field> defaults = rows.fields(rows.target, count);
  std::string out = "[";
  for (size_t row = 0; row < count; ++row) {
    std::string items;
    const Section section{.key = {}, .fields = rows.fields(rows.target, row)};
    for (size_t i = 0; i < section.fields.size(); ++i) {
      const Field& field = section.fields[i];
      if (!section.reads(field)) continue;
      const std::string value = yaml_of(field.target);
      if (!field.is_required && value == yaml_of(defaults[i].target)) continue;
      items += (items.empty() ? "" : ", ") + std::string(field.name) + ": " + value;
    }
    out += (row > 0 ? ", {" : "{") + items + "}";
  }
  rows.resize(rows.target, count);
  return out + "]";
}

}  // namespace

std::string yaml_of(const Target& target) {
  if (const auto* kind = std::get_if<Choice>(&target))
    return yaml_of(std::string(kind->words[static_cast<size_t>(kind->get(kind->target))]));
  if (const auto* list = std::get_if<NumbersOrWord>(&target))
    return *list->is_word ? std::string(list->word) : yaml_of(*list->numbers);
  if (const auto* table = std::get_if<Rows>(&target)) return yaml_of(*table);
  if (const auto* map = std::get_if<FreeMap>(&target)) return *map->json;
  return std::visit(
      [](const auto& pointer) -> std::string {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(pointer)>>) return yaml_of(*pointer);
        return {};
      },
      target);
}

}  // namespace stoker::config
