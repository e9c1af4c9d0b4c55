#include "shared/dataset/list_rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "shared/dataset/csv_row.h"
#include "shared/dataset/csv_table.h"
#include "shared/dataset/json_values.h"
#include "shared/dataset/line_scanner.h"
#include "shared/dataset/text_records.h"

namespace stoker::dataset {
namespace {

bool is_json(std::string_view name) { return name.ends_with(".jsonl"); }
bool is_tabbed(std::string_view name) { return name.ends_with(".tsv"); }

// Brings the two values of a row into a ListRow.
class ListReader {
 public:
  ListReader(const DatasetRequest& request, std::string path,
             const std::function<Status(const ListRow&)>& on_row)
      : request_(request),
        path_(std::move(path)),
        names_(list_columns(request.as<config::ImageListDataset>())),
        delimiter_(is_tabbed(path_) ? '\t' : ','),
        json_(names_),
        take_(on_row) {}

  char delimiter() const { return delimiter_; }

  Status take_csv(const TextLine& row) {
    if (!indices_) return take_header(row);
    STOKER_RETURN_IF_ERROR(at(row, row_.split(row.text, delimiter_)));
    std::array<FieldValue, 2> values;
    for (size_t i = 0; i < values.size(); ++i) {
      if ((*indices_)[i] >= row_.size()) continue;
      const std::string_view text = trimmed(row_[(*indices_)[i]]);
      if (!text.empty()) values[i] = std::as_bytes(std::span(text));
    }
    return deliver(row, values);
  }

  Status take_json(const TextLine& row) {
    std::array<FieldValue, 2> values;
    STOKER_RETURN_IF_ERROR(at(row, json_.read(row.text, values)));
    return deliver(row, values);
  }

 private:
  Status at(const TextLine& row, const Status& status) const {
    return status.ok() ? status : status.with_context(path_ + ": " + line_location_text(row.line));
  }

  Status take_header(const TextLine& row) {
    auto columns = csv_header(row.text, delimiter_);
    if (!columns) return at(row, columns.status());
    indices_.emplace();
    for (size_t i = 0; i < names_.size(); ++i) {
      std::optional<size_t> index;
      for (size_t column = 0; column < columns->size(); ++column) {
        if ((*columns)[column] != names_[i]) continue;
        if (index)
          return request_.config_error("path", path_ + " has two columns '" + names_[i] + "'");
        index = column;
      }
      if (!index) {
        return request_.config_error(i == 0 ? "fields.image" : "fields.label",
                                     path_ + " has no column '" + names_[i] + "'");
      }
      indices_->at(i) = *index;
    }
    return {};
  }

  Status deliver(const TextLine& row, const std::array<FieldValue, 2>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_missing(values[i]) || (i == 0 && !is_bytes(values[i])))
        return at(row, Status(StatusCode::kCorrupt, "has no '" + names_[i] + "'"));
    }
    const std::string_view path = to_string_view(std::get<FieldBytes>(values[0]));
    // A message about it must stay one line, and the system ends a path at a NUL.
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (path.empty() || std::ranges::any_of(path, is_control))
      return at(row, Status(StatusCode::kCorrupt, "'" + names_[0] + "' is no path"));
    return at(row, take_({.path = path, .label = values[1], .line = row.line}));
  }

  const DatasetRequest& request_;
  const std::string path_;
  const std::vector<std::string> names_;
  const char delimiter_;
  std::optional<std::array<size_t, 2>> indices_;
  CsvRow row_;
  JsonValues json_;
  const std::function<Status(const ListRow&)>& take_;
};

}  // namespace

std::vector<std::string> list_columns(const config::ImageListDataset& list) {
  return {list.fields.image.empty() ? "path" : list.fields.image,
          list.fields.label.empty() ? "label" : list.fields.label};
}

bool is_image_list_name(std::string_view name) {
  return is_json(name) || is_tabbed(name) || name.ends_with(".csv");
}

Status read_list_rows(const DatasetRequest& request, const FileReader& reader,
                      const FileTable& files, const std::function<Status(const ListRow&)>& on_row) {
  ListReader list(request, files.path(0), on_row);
  if (is_json(files.path(0))) {
    return scan_lines(reader, files, 0, end_of_line,
                      [&list](const TextLine& row) { return list.take_json(row); });
  }
  const LineEnd line_end = [&list](std::string_view bytes) {
    return end_of_csv_row(bytes, list.delimiter());
  };
  return scan_lines(reader, files, 0, line_end,
                    [&list](const TextLine& row) { return list.take_csv(row); });
}

}  // namespace stoker::dataset
