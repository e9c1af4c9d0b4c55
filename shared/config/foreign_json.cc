#include "shared/config/foreign_json.h"

#include <algorithm>

#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"
#include "shared/config/config_errors.h"

namespace stoker::config {
namespace {

namespace json = boost::json;

[[noreturn]] void reject_large_value(std::string_view field, const json::value& value,
                                     const std::string& max) {
  reject_field(field, json_text(value) + " is not supported (at most " + max + ")");
}

// Of a text that is not JSON, from 1: parse_json() does not tell it.
ptrdiff_t line_of_error(std::string_view text) {
  boost::system::error_code error;
  const size_t parsed = json::stream_parser().write_some(text.data(), text.size(), error);
  const size_t end = text.find_last_not_of(" \t\r\n") + 1;  // of a file that is cut: its last line
  return 1 + std::ranges::count(text.substr(0, std::min(parsed, end)), '\n');
}

}  // namespace

void reject_field(std::string_view field, const std::string& what) {
  throw FieldError{"'" + std::string(field) + "' " + what};
}

void reject_value(std::string_view field, const json::value& value, const std::string& expected) {
  reject_field(field, "must be " + expected + ", got " + json_text(value));
}

std::string setting_text(double value) { return format_shortest(value); }

std::string json_text(const json::value& value) {
  constexpr size_t kMaxText = 80;
  if (value.is_double()) return setting_text(value.as_double());
  return one_line(json::serialize(value), kMaxText);
}

json::value json_field(const json::object& object, std::string_view field) {
  const json::value* const found = object.if_contains(field);
  return found == nullptr ? json::value() : *found;
}

int64_t read_count(std::string_view field, const json::value& value, double max) {
  const std::string max_text = std::to_string(static_cast<int64_t>(max));
  const bool is_large = value.is_uint64() ||  // above those of int64
                        (value.is_int64() && static_cast<double>(value.as_int64()) > max);
  if (is_large) reject_large_value(field, value, max_text);
  if (value.is_int64() && value.as_int64() >= 1) return value.as_int64();
  reject_value(field, value, "an integer from 1 to " + max_text);
}

bool read_bool(std::string_view field, const json::value& value) {
  if (value.is_bool()) return value.as_bool();
  reject_value(field, value, "true or false");
}

double read_real(std::string_view field, const json::value& value, const NumberRange& range) {
  boost::system::error_code error;
  const double number = value.is_number() ? value.to_number<double>(error) : range.min - 1;
  const bool is_above = number > range.min || (range.includes_min && number == range.min);
  if (!error && number > range.max) reject_large_value(field, value, setting_text(range.max));
  if (!error && is_above) return number;
  const std::string min = setting_text(range.min), max = setting_text(range.max);
  reject_value(field, value,
               range.includes_min ? "a number from " + min + " to " + max
                                  : "a number above " + min + " and at most " + max);
}

void require_only(const json::object& object, std::string_view field, const json::value& wanted,
                  const std::string& reason) {
  const json::value value = json_field(object, field);
  if (!value.is_null() && value != wanted)
    reject_field(field,
                 json_text(value) + " is not supported (only " + json_text(wanted) + ")" + reason);
}

Result<json::object> parse_foreign_json(std::string_view text, const std::string& path) {
  boost::system::error_code error;
  const json::value value = parse_json(text, error);
  if (error)
    return Status(StatusCode::kInvalidArgument,
                  path + ": line " + std::to_string(line_of_error(text)) +
                      ": not JSON: " + error.message() + "; correct it, or download it again");
  if (!value.is_object())
    return Status(StatusCode::kInvalidArgument, path + ": must be a JSON object");
  return value.as_object();
}

}  // namespace stoker::config
