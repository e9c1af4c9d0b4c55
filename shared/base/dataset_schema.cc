#include "shared/base/dataset_schema.h"

#include <algorithm>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

namespace json = boost::json;

constexpr size_t kNamesShown = 10;
constexpr size_t kNameBytesShown = 40;

json::array to_array(const std::vector<std::string>& names) {
  json::array array;
  for (const std::string& name : names) array.emplace_back(valid_utf8(name));
  return array;
}

std::vector<std::string> names_at(const json::object& object, const char* key) {
  std::vector<std::string> names;
  if (!object.contains(key)) return names;
  for (const json::value& name : object.at(key).as_array()) names.emplace_back(name.as_string());
  return names;
}

}  // namespace

json::object to_json_object(const DatasetSchema& schema) {
  json::object object{{"num_classes", schema.num_classes}};
  if (!schema.class_names.empty()) object["class_names"] = to_array(schema.class_names);
  if (!schema.input_columns.empty()) object["input_columns"] = to_array(schema.input_columns);
  if (!schema.target_columns.empty()) object["target_columns"] = to_array(schema.target_columns);
  if (schema.num_samples > 0) object["num_samples"] = schema.num_samples;
  return object;
}

DatasetSchema parse_schema_object(const json::object& object) {
  return {.num_classes = object.at("num_classes").to_number<uint64_t>(),
          .class_names = names_at(object, "class_names"),
          .input_columns = names_at(object, "input_columns"),
          .target_columns = names_at(object, "target_columns"),
          .num_samples =
              object.contains("num_samples") ? object.at("num_samples").to_number<uint64_t>() : 0};
}

std::string to_json(const DatasetSchema& schema) {
  return json::serialize(to_json_object(schema)) + "\n";
}

Result<DatasetSchema> parse_dataset_schema(std::string_view text, const std::string& path) {
  return parse_json_object<DatasetSchema>(text, path,
                                          [](const json::object& object) -> Result<DatasetSchema> {
                                            return parse_schema_object(object);
                                          });
}

std::string describe(const DatasetSchema& schema) {
  std::string text;
  if (schema.num_classes > 0) {
    text = std::to_string(schema.num_classes) + (schema.num_classes == 1 ? " class" : " classes");
    text += schema.class_names.empty() ? " (indices)" : ": " + summarize_names(schema.class_names);
  }
  const auto add = [&text](const char* what, const std::vector<std::string>& columns) {
    if (!columns.empty())
      text += (text.empty() ? "" : "; ") + std::string(what) + summarize_names(columns);
  };
  add("input columns ", schema.input_columns);
  add("target columns ", schema.target_columns);
  return text;
}

std::string summarize_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i].substr(0, kNameBytesShown));
  return names.size() > kNamesShown ? text + ", …" : text;
}

}  // namespace stoker
