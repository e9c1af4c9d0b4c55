#include "shared/data/record/field_value.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace stoker::data::record {
namespace {

Status wrong(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

std::string counted(size_t count, const std::string& one) {
  return std::to_string(count) + ' ' + one + (count == 1 ? "" : "s");
}

template <typename Number>
bool parse_all(std::string_view text, Number& number) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

// A number as people and programs write it. What is too small for a float is 0, what is too large
// infinite.
bool parse_float(std::string_view text, float& number) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ptr != text.data() + text.size()) return false;
  if (parsed.ec == std::errc::result_out_of_range) {
    // from_chars() does not say on which side: strtof() does, and such numbers are rare.
    number = std::strtof(std::string(text).c_str(), nullptr);
    return true;
  }
  return parsed.ec == std::errc();
}

Status append_finite(float number, std::span<float> out, size_t& filled) {
  if (!std::isfinite(number))
    return wrong("holds " + std::string(std::isnan(number) ? "NaN" : "an infinite number"));
  out[filled++] = number;
  return {};
}

template <typename Number>
Status append_all(std::span<const Number> numbers, std::span<float> out, size_t& filled) {
  if (numbers.size() > out.size() - filled) {
    return wrong("has " + counted(numbers.size(), "number") + ", more than the " +
                 std::to_string(out.size() - filled) + " that are needed");
  }
  for (const Number number : numbers)
    STOKER_RETURN_IF_ERROR(append_finite(static_cast<float>(number), out, filled));
  return {};
}

}  // namespace

std::string describe(const FieldValue& value) {
  if (const auto* bytes = std::get_if<FieldBytes>(&value)) return counted(bytes->size(), "byte");
  if (const auto* ints = std::get_if<FieldInts>(&value))
    return counted(ints->size(), "whole number");
  if (const auto* floats = std::get_if<FieldFloats>(&value))
    return counted(floats->size(), "number");
  return "nothing";
}

std::string quote_for_message(std::string_view text, size_t max_bytes) {
  std::string shown = "'";
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    shown += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return shown + (text.size() > max_bytes ? "…'" : "'");
}

std::string_view to_string_view(FieldBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

Status copy_bytes(const FieldValue& value, std::span<std::byte> out) {
  const auto* bytes = std::get_if<FieldBytes>(&value);
  if (bytes == nullptr || bytes->size() != out.size()) {
    return wrong("is " + describe(value) + ", but " + counted(out.size(), "byte") + " are needed");
  }
  if (!out.empty()) std::memcpy(out.data(), bytes->data(), out.size());
  return {};
}

Status append_numbers(const FieldValue& value, std::span<float> out, size_t& filled) {
  if (const auto* floats = std::get_if<FieldFloats>(&value))
    return append_all(*floats, out, filled);
  if (const auto* ints = std::get_if<FieldInts>(&value)) return append_all(*ints, out, filled);
  const auto* bytes = std::get_if<FieldBytes>(&value);
  if (bytes == nullptr) return wrong("is not there");
  float number = 0;
  if (!parse_float(trimmed(to_string_view(*bytes)), number))
    return wrong("is " + quote_for_message(to_string_view(*bytes)) + ", not a number");
  return append_all(std::span<const float>(&number, 1), out, filled);
}

Result<uint64_t> whole_number(const FieldValue& value) {
  if (const auto* bytes = std::get_if<FieldBytes>(&value)) {
    uint64_t number = 0;
    if (parse_all(trimmed(to_string_view(*bytes)), number)) return number;
    return wrong("is " + quote_for_message(to_string_view(*bytes)) + ", not a whole number from 0");
  }
  const auto* ints = std::get_if<FieldInts>(&value);
  if (ints == nullptr || ints->size() != 1)
    return wrong("is " + describe(value) + ", but one whole number is needed");
  if (ints->front() < 0) return wrong("is " + std::to_string(ints->front()) + ", below 0");
  return static_cast<uint64_t>(ints->front());
}

}  // namespace stoker::data::record
