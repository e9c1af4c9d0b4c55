#include "shared/data/record/field_value.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "shared/base/number_format.h"
#include "shared/base/target_clones.h"
#include "shared/base/tensor_spec.h"
#include "shared/base/utf8.h"

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

// Also accepts a leading '+'. A number that is too small for a float becomes 0, one that is too
// large becomes infinite.
bool parse_float(std::string_view text, float& number) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ptr != text.data() + text.size()) return false;
  if (parsed.ec == std::errc::result_out_of_range) {
    // from_chars() does not distinguish underflow from overflow; strtof() does. Such numbers are
    // rare.
    number = std::strtof(std::string(text).c_str(), nullptr);
    return true;
  }
  return parsed.ec == std::errc();
}

Status nonfinite(float number) {
  return wrong(std::string("must be finite, got ") + (std::isnan(number) ? "NaN" : "infinity"));
}

template <typename Number>
Status append_all(std::span<const Number> numbers, std::span<float> out, size_t& filled) {
  if (numbers.size() > out.size() - filled) {
    return wrong("has " + counted(numbers.size(), "number") + ", more than the required " +
                 std::to_string(out.size() - filled));
  }
  for (const Number number : numbers) {
    const auto value = static_cast<float>(number);
    if (!std::isfinite(value)) return nonfinite(value);
    out[filled++] = value;
  }
  return {};
}

// ---- Arrays

constexpr NumberType kUint8{.kind = 'u', .bytes = 1};
constexpr NumberType kFloat32{.kind = 'f', .bytes = 4};

struct Half {
  uint16_t bits;
};

template <typename Number>
float as_float(Number number) {
  if constexpr (std::is_same_v<Number, Half>) {
    return half_to_float(number.bits);
  } else if constexpr (std::is_same_v<Number, double>) {
    constexpr double kMaxFloat = std::numeric_limits<float>::max();
    // The conversion of a larger number is undefined. As IEEE 754 rounds, a number less than half a
    // unit in the last place above kMaxFloat becomes kMaxFloat.
    constexpr double kRoundsDown = kMaxFloat + 0x1p103;
    if (number > kMaxFloat)
      return number < kRoundsDown ? std::numeric_limits<float>::max()
                                  : std::numeric_limits<float>::infinity();
    if (number < -kMaxFloat)
      return number > -kRoundsDown ? -std::numeric_limits<float>::max()
                                   : -std::numeric_limits<float>::infinity();
    return static_cast<float>(number);
  } else {
    return static_cast<float>(number);
  }
}

template <typename Number>
Number element_at(const FieldArray& array, uint64_t element) {
  Number number;
  std::memcpy(&number, array.bytes.data() + element * sizeof number, sizeof number);
  return number;
}

template <typename Number>
void convert_all(const FieldArray& array, std::span<std::byte> out) {
  const uint64_t count = array.size();
  for (uint64_t i = 0; i < count; ++i) {
    const float value = as_float(element_at<Number>(array, i));
    std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
  }
}

template <typename Number>
int64_t as_integer(Number number) {
  constexpr auto kMaxWhole = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (number > Number{0} && static_cast<uint64_t>(number) > kMaxWhole) return -1;
  return static_cast<int64_t>(number);
}

// Calls `with` with a zero of the C++ type that corresponds to `type`, an integer type.
template <typename With>
auto with_integer(const NumberType& type, const With& with) {
  const bool is_signed = type.kind == 'i';
  switch (type.bytes) {
    case 1:
      return is_signed ? with(int8_t{}) : with(uint8_t{});
    case 2:
      return is_signed ? with(int16_t{}) : with(uint16_t{});
    case 4:
      return is_signed ? with(int32_t{}) : with(uint32_t{});
    default:
      return is_signed ? with(int64_t{}) : with(uint64_t{});
  }
}

// Without an early end, so that the loop is vectorized.
STOKER_TARGET_CLONES bool all_finite(std::span<const float> numbers) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (const float number : numbers)
    bad |= (std::bit_cast<uint32_t>(number) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

Status append_array(const FieldArray& array, std::span<float> out, size_t& filled) {
  const auto room = out.subspan(filled);
  if (array.size() > room.size())
    return wrong("has " + counted(array.size(), "number") + ", more than the required " +
                 std::to_string(room.size()));
  const auto numbers = room.first(array.size());
  const auto bytes = std::as_writable_bytes(numbers);
  const bool is_in_place = array.type == kFloat32 && array.bytes.data() == bytes.data();
  if (!is_in_place) array_to_floats(array, bytes);
  if (!all_finite(numbers))
    return nonfinite(*std::ranges::find_if_not(numbers, [](float n) { return std::isfinite(n); }));
  filled += numbers.size();
  return {};
}

}  // namespace

void array_to_floats(const FieldArray& array, std::span<std::byte> out) {
  assert(array.size() == out.size() / sizeof(float));
  if (array.type == NumberType{'f', 2}) return convert_all<Half>(array, out);
  if (array.type == kFloat32) return convert_all<float>(array, out);
  if (array.type == NumberType{'f', 8}) return convert_all<double>(array, out);
  with_integer(array.type, [&](auto number) { convert_all<decltype(number)>(array, out); });
}

int64_t integer_at(const FieldArray& array, uint64_t element) {
  assert(array.type.is_integer() && element < array.size());
  return with_integer(array.type, [&](auto number) {
    return as_integer(element_at<decltype(number)>(array, element));
  });
}

int64_t class_at(const FieldArray& array, uint64_t element) {
  return std::max<int64_t>(integer_at(array, element), -1);
}

void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes) {
  const size_t count = pixels.size() / channels;
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t pixel = 0; pixel < count; ++pixel)
      planes[channel * count + pixel] = pixels[pixel * channels + channel];
}

std::string describe(const FieldValue& value) {
  if (const auto* bytes = std::get_if<FieldBytes>(&value)) return counted(bytes->size(), "byte");
  if (const auto* ints = std::get_if<FieldInts>(&value)) return counted(ints->size(), "integer");
  if (const auto* floats = std::get_if<FieldFloats>(&value))
    return counted(floats->size(), "number");
  if (const auto* array = std::get_if<FieldArray>(&value)) {
    return counted(array->size(), array->type == kUint8      ? "byte"
                                  : array->type.is_integer() ? "integer"
                                                             : "number");
  }
  return "nothing";
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
  if (byte_count(value) != out.size())
    return wrong("must be " + counted(out.size(), "byte") + ", got " + describe(value));
  if (out.empty()) return {};
  const auto* array = std::get_if<FieldArray>(&value);
  if (array != nullptr && array->interleaved_channels > 1) {
    deinterleave(array->bytes, array->interleaved_channels, out);
  } else {
    const FieldBytes bytes = array != nullptr ? array->bytes : std::get<FieldBytes>(value);
    if (bytes.data() != out.data()) std::memcpy(out.data(), bytes.data(), out.size());
  }
  return {};
}

std::optional<size_t> byte_count(const FieldValue& value) {
  if (const auto* bytes = std::get_if<FieldBytes>(&value)) return bytes->size();
  const auto* array = std::get_if<FieldArray>(&value);
  if (array == nullptr || array->type != kUint8) return std::nullopt;
  return array->bytes.size();
}

bool is_finite(const FieldArray& array) {
  if (array.type.is_integer()) return true;
  std::vector<float> numbers(array.size());
  array_to_floats(array, std::as_writable_bytes(std::span(numbers)));
  return all_finite(numbers);
}

Status append_numbers(const FieldValue& value, std::span<float> out, size_t& filled) {
  if (const auto* floats = std::get_if<FieldFloats>(&value))
    return append_all(*floats, out, filled);
  if (const auto* ints = std::get_if<FieldInts>(&value)) return append_all(*ints, out, filled);
  if (const auto* array = std::get_if<FieldArray>(&value)) return append_array(*array, out, filled);
  const auto* bytes = std::get_if<FieldBytes>(&value);
  if (bytes == nullptr) return wrong("is missing");
  float number = 0;
  if (!parse_float(trimmed(to_string_view(*bytes)), number))
    return wrong("must be a number, got " + quote_for_message(to_string_view(*bytes)));
  return append_all(std::span<const float>(&number, 1), out, filled);
}

Result<uint64_t> non_negative_integer(const FieldValue& value) {
  if (const auto* bytes = std::get_if<FieldBytes>(&value)) {
    uint64_t number = 0;
    if (parse_all(trimmed(to_string_view(*bytes)), number)) return number;
    return wrong("must be an integer of at least 0, got " +
                 quote_for_message(to_string_view(*bytes)));
  }
  const auto* array = std::get_if<FieldArray>(&value);
  const auto* ints = std::get_if<FieldInts>(&value);
  const bool is_one = array != nullptr ? array->type.is_integer() && array->size() == 1
                                       : ints != nullptr && ints->size() == 1;
  if (!is_one) return wrong("must be one integer, got " + describe(value));
  const int64_t number = array != nullptr ? class_at(*array, 0) : ints->front();
  if (number < 0) return wrong("must be at least 0, got " + std::to_string(number));
  return static_cast<uint64_t>(number);
}

namespace {

// The single number of `value`, as text or as a float; nullopt for other values.
std::optional<double> single_number(const FieldValue& value) {
  if (const auto* const bytes = std::get_if<FieldBytes>(&value)) {
    std::string_view text = trimmed(to_string_view(*bytes));
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    double number = 0;
    return parse_all(text, number) ? std::optional(number) : std::nullopt;
  }
  if (const auto* const floats = std::get_if<FieldFloats>(&value))
    return floats->size() == 1 ? std::optional<double>(floats->front()) : std::nullopt;
  const auto* const array = std::get_if<FieldArray>(&value);
  if (array == nullptr || array->size() != 1 || array->type.is_integer()) return std::nullopt;
  if (array->type.bytes == sizeof(double)) return element_at<double>(*array, 0);
  return array->type.bytes == sizeof(float) ? element_at<float>(*array, 0)
                                            : as_float(element_at<Half>(*array, 0));
}

}  // namespace

Result<uint64_t> class_index(const FieldValue& value) {
  auto index = non_negative_integer(value);
  if (index.ok()) return index;
  const std::optional<double> number = single_number(value);
  constexpr double kMaxExact = 0x1p53;
  if (number && *number >= 0 && *number <= kMaxExact && *number == std::floor(*number))
    return static_cast<uint64_t>(*number);
  if (number && !is_bytes(value))
    return wrong("must be an integer of at least 0, got " + format_shortest(*number));
  return index;
}

bool is_number(std::string_view text) {
  return single_number(std::as_bytes(std::span(text))).has_value();
}

Result<int64_t> integer(const FieldValue& value) {
  const auto* const ints = std::get_if<FieldInts>(&value);
  if (ints != nullptr && ints->size() == 1) return ints->front();
  std::string got = describe(value);
  if (const auto* const bytes = std::get_if<FieldBytes>(&value)) {
    int64_t number = 0;
    if (parse_all(trimmed(to_string_view(*bytes)), number)) return number;
    got = quote_for_message(to_string_view(*bytes));
  }
  // One that is out of range, too, in JSON.
  const auto* const floats = std::get_if<FieldFloats>(&value);
  if (floats != nullptr && floats->size() == 1) got = format_shortest(floats->front());
  return wrong("must be one integer from -2^63 to 2^63 - 1, got " + got);
}

Result<std::string> group_text(const FieldValue& value) {
  if (const auto* const bytes = std::get_if<FieldBytes>(&value)) {
    const std::string_view text = trimmed(to_string_view(*bytes));
    if (text.empty()) return wrong("is empty");
    return std::string(text);
  }
  const auto number = integer(value);
  if (number.ok()) return std::to_string(*number);
  return wrong("must be a text or one integer, got " + describe(value));
}

std::optional<uint64_t> number_count(const FieldValue& value) {
  if (const auto* ints = std::get_if<FieldInts>(&value)) return ints->size();
  if (const auto* floats = std::get_if<FieldFloats>(&value)) return floats->size();
  if (const auto* array = std::get_if<FieldArray>(&value)) return array->size();
  return std::nullopt;
}

Result<uint64_t> integer_count(const FieldValue& value) {
  if (const auto* ints = std::get_if<FieldInts>(&value)) return ints->size();
  const auto* array = std::get_if<FieldArray>(&value);
  if (array != nullptr && array->type.is_integer()) return array->size();
  return wrong("must be a list of integers, got " + describe(value));
}

FieldValue first_numbers(const FieldValue& value, uint64_t count) {
  if (const auto* ints = std::get_if<FieldInts>(&value)) return ints->first(count);
  if (const auto* floats = std::get_if<FieldFloats>(&value)) return floats->first(count);
  if (const auto* array = std::get_if<FieldArray>(&value)) return array->first(count);
  return value;
}

FieldInts integers(const FieldValue& value, uint64_t first, std::span<int64_t> buffer) {
  if (const auto* ints = std::get_if<FieldInts>(&value))
    return ints->subspan(first, std::min<uint64_t>(ints->size() - first, buffer.size()));
  const auto& array = std::get<FieldArray>(value);
  const auto converted = buffer.first(std::min<uint64_t>(array.size() - first, buffer.size()));
  with_integer(array.type, [&](auto number) {
    for (size_t i = 0; i < converted.size(); ++i)
      converted[i] = as_integer(element_at<decltype(number)>(array, first + i));
  });
  return converted;
}

void copy_integers(const FieldValue& value, std::span<int64_t> out) {
  const FieldInts numbers = integers(value, 0, out);
  assert(numbers.size() == out.size());
  if (numbers.data() != out.data()) std::ranges::copy(numbers, out.begin());
}

}  // namespace stoker::data::record
