// Settings files of other programs, which are JSON (transformers, timm, PEFT): their fields, errors in
// them, and values as text.
//
// Threads: functions of their arguments.
// Errors:  kInvalidArgument, as for every file of settings: not JSON, or a field is missing, of
//          another type, out of range or not supported. The message names the file, and the line or
//          the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "shared/base/status.h"

namespace stoker::config {

// Thrown while the fields are read; read_foreign_json() makes it a Status.
struct FieldError {
  std::string message;
};

[[noreturn]] void reject_field(std::string_view field, const std::string& what);
[[noreturn]] void reject_value(std::string_view field, const boost::json::value& value,
                               const std::string& expected);

// The shortest text that is read as the same number.
std::string setting_text(double value);
// For messages.
std::string json_text(const boost::json::value& value);

// Null if it is absent.
boost::json::value json_field(const boost::json::object& object, std::string_view field);

int64_t read_count(std::string_view field, const boost::json::value& value, double max);
bool read_bool(std::string_view field, const boost::json::value& value);

// A number above `min`, or from it.
struct NumberRange {
  double min, max;
  bool includes_min = false;
};
double read_real(std::string_view field, const boost::json::value& value, const NumberRange& range);

// Of a field that is supported with one value, which it also has if it is absent or null. `reason`
// follows the message.
void require_only(const boost::json::object& object, std::string_view field,
                  const boost::json::value& wanted, const std::string& reason = {});

// `path` is used in messages.
Result<boost::json::object> parse_foreign_json(std::string_view text, const std::string& path);

// `read` converts the object, and can throw FieldError.
template <typename T, typename Read>
Result<T> read_foreign_json(std::string_view text, const std::string& path, Read&& read) {
  STOKER_ASSIGN_OR_RETURN(const boost::json::object object, parse_foreign_json(text, path));
  try {
    return std::forward<Read>(read)(object);
  } catch (const FieldError& wrong) {
    return Status(StatusCode::kInvalidArgument, path + ": " + wrong.message);
  }
}

}  // namespace stoker::config
