#include "shared/model/plugin_args.h"

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"

namespace stoker::model {
namespace {

using ArgumentValues = std::map<std::string, std::string>;

// Stores every scalar below `value` under its path.
void flatten(const std::string& path, const boost::json::value& value, ArgumentValues& values) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return;
    case boost::json::kind::bool_:
      values[path] = value.get_bool() ? "true" : "false";
      return;
    case boost::json::kind::int64:
      values[path] = format_shortest(value.get_int64());
      return;
    case boost::json::kind::uint64:
      values[path] = format_shortest(value.get_uint64());
      return;
    case boost::json::kind::double_:
      values[path] = format_shortest(value.get_double());
      return;
    case boost::json::kind::string:
      values[path] = std::string(value.get_string());
      return;
    case boost::json::kind::array:
      values[path + "[]"] = std::to_string(value.get_array().size());
      for (size_t i = 0; i < value.get_array().size(); ++i)
        flatten(path + '[' + std::to_string(i) + ']', value.get_array()[i], values);
      return;
    case boost::json::kind::object:
      for (const auto& [key, item] : value.get_object())
        flatten((path.empty() ? "" : path + '.') + std::string(key), item, values);
  }
}

}  // namespace

Result<plugin::Args> plugin_args(const std::string& json) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(json, error);
  if (error || !value.is_object())
    return Status(StatusCode::kInvalidArgument, "model.args: not a mapping of keys to values");
  ArgumentValues values;
  flatten("", value, values);
  return plugin::Args(json, std::move(values));
}

}  // namespace stoker::model
