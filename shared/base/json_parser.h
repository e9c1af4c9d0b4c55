// json_parser: parses JSON with every number converted to the nearest double.
//
// Boost.JSON's own parser rounds the last digit of about one in several dozen numbers incorrectly
// (since 1.83 it has an option). A learning rate, a best loss or a result must be unchanged after
// it was written and read back by a restarted process.
//
// Threads:  pure functions.
// Errors:   like boost::json::parse(): sets the error code and returns null.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "shared/base/status.h"

namespace stoker {

// Like boost::json::parse(): one value, with at most 8 million in it, `max_depth` levels deep.
boost::json::value parse_json(std::string_view text, boost::system::error_code& error,
                              size_t max_depth = 32);

// The double nearest to `text`, a JSON number; `default_value` if it is out of range.
double parse_double_exact(std::string_view text, double default_value);

// Converts the JSON `text` with `read`, of which exceptions, such as those of Boost.JSON's accessors,
// become a status. kCorrupt with `path` in the message: not JSON, or a field is missing or has the
// wrong type.
template <typename T, typename Read>
Result<T> parse_json_value(std::string_view text, const std::string& path, Read&& read,
                           size_t max_depth = 32) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(text, error, max_depth);
  if (error) return Status(StatusCode::kCorrupt, path + ": not JSON: " + error.message());
  try {
    return read(value);
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kCorrupt,
                  path + ": a field is missing or has the wrong type: " + wrong.what());
  }
}

// The same of an object.
template <typename T, typename Read>
Result<T> parse_json_object(std::string_view text, const std::string& path, Read&& read,
                            size_t max_depth = 32) {
  return parse_json_value<T>(
      text, path, [&read](const boost::json::value& value) { return read(value.as_object()); },
      max_depth);
}

}  // namespace stoker
