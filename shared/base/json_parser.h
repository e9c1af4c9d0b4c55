// exact JSON: reading text so that each number is the double nearest to what is written.
//
// Boost.JSON's own parser is wrong in the last place for one number in some tens (from 1.83 on it
// has an option). A learning rate, a best loss or a result that is written, and read back after a
// restart, has to be the same number.
//
// Threads: functions of their arguments.
// Errors:  as boost::json::parse(): the error code; the value is null then.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "shared/base/status.h"

namespace stoker {

// As boost::json::parse(): the whole text is one value, nested at most `max_depth` deep.
boost::json::value parse_json(std::string_view text, boost::system::error_code& error,
                              size_t max_depth = 32);

// The double nearest to `text`, a number as JSON spells it; `default_value` where it is beyond all doubles.
double parse_double_exact(std::string_view text, double default_value);

// The T that `read` makes of the JSON object `text`; what Boost.JSON's accessors throw in it becomes a
// status. kCorrupt: not JSON, or a field is missing or has the wrong type; names the file `path`.
template <typename T, typename Read>
Result<T> parse_json_object(std::string_view text, const std::string& path, Read&& read) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(text, error);
  if (error) return Status(StatusCode::kCorrupt, path + ": not JSON: " + error.message());
  try {
    return read(value.as_object());
  } catch (const std::exception& wrong) {
    return Status(StatusCode::kCorrupt,
                  path + ": a field is missing or has the wrong type: " + wrong.what());
  }
}

}  // namespace stoker
