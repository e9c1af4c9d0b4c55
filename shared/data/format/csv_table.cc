#include "shared/data/format/csv_table.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "shared/data/record/field_value.h"

namespace stoker::data::format {
namespace {

bool has(std::string_view text, char c) {
  return !text.empty() && std::memchr(text.data(), c, text.size()) != nullptr;
}

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// Position after the quote that closes the field starting at `open`; npos if there is none.
size_t behind_quoted(std::string_view bytes, size_t open) {
  for (size_t at = open + 1;;) {
    at = bytes.find('"', at);
    if (at == std::string_view::npos) return at;
    if (at + 1 == bytes.size() || bytes[at + 1] != '"') return at + 1;
    at += 2;
  }
}

}  // namespace

size_t end_of_csv_row(std::string_view bytes, char delimiter) {
  const size_t line_end = bytes.find('\n');
  const bool in_quotes = has(bytes.substr(0, line_end), '"');
  if (!in_quotes) return line_end == std::string_view::npos ? 0 : line_end + 1;
  for (size_t at = 0; at < bytes.size();) {
    if (bytes[at] == '"') {
      at = behind_quoted(bytes, at);
      // A quote at the very end can be the first of an escaped pair.
      if (at == std::string_view::npos || at == bytes.size()) return 0;
    }
    while (at < bytes.size() && bytes[at] != delimiter && bytes[at] != '\n') ++at;
    if (at == bytes.size()) return 0;
    if (bytes[at++] == '\n') return at;
  }
  return 0;
}

Status CsvRow::split(std::string_view text, char delimiter) {
  std::string_view rest = without_line_end(text);
  fields_.clear();
  unquoted_.clear();
  unquoted_.reserve(rest.size());
  for (;;) {
    if (rest.starts_with('"')) {
      STOKER_RETURN_IF_ERROR(take_quoted(rest, delimiter));
    } else {
      const size_t end = std::min(rest.find(delimiter), rest.size());
      fields_.push_back(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    if (rest.empty()) return {};
    rest.remove_prefix(1);  // the delimiter; an empty field can follow
  }
}

// Consumes a quoted field, up to the delimiter after it or the end of the row.
Status CsvRow::take_quoted(std::string_view& rest, char delimiter) {
  const std::string column = "column " + std::to_string(fields_.size() + 1);
  const size_t behind = behind_quoted(rest, 0);
  if (behind == std::string_view::npos)
    return Status(StatusCode::kCorrupt, column + " begins with a quote that is never closed");
  std::string_view field = rest.substr(1, behind - 2);
  rest.remove_prefix(behind);
  if (!rest.empty() && rest.front() != delimiter)
    return Status(StatusCode::kCorrupt, column + " has text behind its closing quote");
  if (has(field, '"')) {
    const size_t begin = unquoted_.size();
    for (size_t at = 0; at < field.size(); ++at) {
      unquoted_ += field[at];
      if (field[at] == '"') ++at;  // the second quote of an escaped pair
    }
    field = std::string_view(unquoted_).substr(begin);
  }
  fields_.push_back(field);
  return {};
}

Result<CsvRow::One> CsvRow::split_one(std::string_view text, char delimiter, size_t wanted) {
  if (has(text, '"')) {
    STOKER_RETURN_IF_ERROR(split(text, delimiter));
    return One{.field = wanted < size() ? std::optional(fields_[wanted]) : std::nullopt,
               .fields = size()};
  }
  std::string_view rest = without_line_end(text);
  One one{.field = {}, .fields = 1 + static_cast<size_t>(std::ranges::count(rest, delimiter))};
  if (wanted >= one.fields) return one;
  if (wanted + 1 == one.fields) {  // fast path: the label is often the last of many columns
    one.field = rest.substr(rest.rfind(delimiter) + 1);
    return one;
  }
  for (size_t skipped = 0; skipped < wanted; ++skipped)
    rest.remove_prefix(rest.find(delimiter) + 1);
  one.field = rest.substr(0, rest.find(delimiter));
  return one;
}

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
    const bool is_group = !fields.group.empty() && name == fields.group;
    if (name == fields.label || is_group || std::ranges::find(target, name) != target.end() ||
        std::ranges::find(fields.others, name) != fields.others.end())
      continue;
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
                                              const record::SampleSpec& spec) const {
  constexpr size_t kTwice = SIZE_MAX;
  const record::FieldSpec& input = spec.input();
  if (static_cast<size_t>(input.elements()) != input.num_values) {
    return request.config_error(
        "input_shape", "has " + std::to_string(input.elements()) + " numbers, but there are " +
                           std::to_string(input.num_values) + " input columns");
  }
  std::unordered_map<std::string_view, size_t> place_of;
  for (size_t column = 0; column < columns.size(); ++column) {
    const auto [index, is_new] = place_of.try_emplace(columns[column], column);
    if (!is_new) index->second = kTwice;
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < spec.names.size(); ++i) {
    const std::string& name = spec.names[i];
    const auto found = place_of.find(name);
    if (found == place_of.end()) {
      const bool is_cut = columns.size() != 1 || columns[0].find_first_of(";\t|,") == name.npos;
      return request.config_error(
          spec.key_of(i),
          "there is no column '" + name + "' among the " + std::to_string(columns.size()) + ": " +
              shown(columns) +
              (is_cut ? ""
                      : "; set " + request.key("delimiter") + " to the character between them"));
    }
    if (found->second == kTwice)
      return request.config_error(spec.key_of(i), "there are two columns '" + name + "'");
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
    // Spreadsheets write line breaks into long headers. A configured name cannot contain them, and
    // a message must stay one line.
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    std::ranges::replace_if(name, is_control, ' ');
    names.emplace_back(record::trimmed(name));
  }
  return names;
}

}  // namespace stoker::data::format
