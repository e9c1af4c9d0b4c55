// parse_object: the files of a run directory that are one JSON object each.
//
// Threads: a function of its arguments.
// Errors:  kCorrupt: not JSON, or a field is missing or has the wrong type; names the file.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/status.h"

namespace stoker::run {

// `read` makes the T of a boost::json::object; whatever Boost.JSON's accessors throw in it becomes
// a status.
template <typename T, typename Read>
Result<T> parse_object(std::string_view text, const std::string& path, Read&& read) {
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

}  // namespace stoker::run
