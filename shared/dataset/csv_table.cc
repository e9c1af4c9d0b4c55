#include "shared/dataset/csv_table.h"

#include <algorithm>
#include <unordered_map>

#include "shared/dataset/csv_row.h"

namespace stoker::dataset {
namespace {

constexpr size_t kNamesShown = 8;

std::string shown(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += (i == 0 ? "" : ", ") + names[i].substr(0, 64);
  return names.size() > kNamesShown ? text + ", …" : text;
}

}  // namespace

Result<config::RecordConfig> CsvTable::with_inputs(const DatasetRequest& request) const {
  config::RecordConfig record = request.as<config::CsvDataset>().record;
  config::FieldNames& fields = record.fields;
  if (!fields.input.empty()) return record;
  for (size_t column = 0; column < columns.size(); ++column) {
    const std::string& name = columns[column];
    const auto& target = fields.target;
    if (name == fields.label || std::ranges::find(target, name) != target.end()) continue;
    if (name.empty()) {
      return request.config_error("fields.input",
                                  "is empty, which takes every column, but column " +
                                      std::to_string(column + 1) +
                                      " has no name; name those that are inputs");
    }
    fields.input.push_back(name);
  }
  if (fields.input.empty())
    return request.config_error("fields.input", "is empty, and there is no other column");
  return record;
}

Result<std::vector<size_t>> CsvTable::indices(const DatasetRequest& request,
                                              const RecordFields& fields) const {
  constexpr size_t kTwice = SIZE_MAX;
  const TensorSpec input = fields.spec(InputForm::kNumbers).front();
  size_t inputs = 0;
  while (inputs < fields.names().size() && fields.key_of_name(inputs) == "input") ++inputs;
  if (static_cast<size_t>(input.elements()) != inputs) {
    return request.config_error("input_shape", "has " + std::to_string(input.elements()) +
                                                   " numbers, but there are " +
                                                   std::to_string(inputs) + " input columns");
  }
  std::unordered_map<std::string_view, size_t> place_of;
  for (size_t column = 0; column < columns.size(); ++column) {
    const auto [index, is_new] = place_of.try_emplace(columns[column], column);
    if (!is_new) index->second = kTwice;
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < fields.names().size(); ++i) {
    const std::string& name = fields.names()[i];
    const auto found = place_of.find(name);
    if (found == place_of.end()) {
      return request.config_error(fields.key_of(i), "there is no column '" + name + "' among the " +
                                                        std::to_string(columns.size()) + ": " +
                                                        shown(columns));
    }
    if (found->second == kTwice)
      return request.config_error(fields.key_of(i), "there are two columns '" + name + "'");
    indices.push_back(found->second);
  }
  return indices;
}

Result<std::vector<std::string>> csv_header(std::string_view row, char delimiter) {
  CsvRow fields;
  STOKER_RETURN_IF_ERROR(fields.split(row, delimiter));
  std::vector<std::string> names;
  for (size_t i = 0; i < fields.size(); ++i) {
    std::string name(fields[i]);
    // Spreadsheets break the lines of long headers; a setting cannot, and a message must not.
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    std::ranges::replace_if(name, is_control, ' ');
    names.emplace_back(trimmed(name));
  }
  return names;
}

}  // namespace stoker::dataset
