#include "shared/dataset/list_rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "shared/dataset/csv_row.h"
#include "shared/dataset/csv_table.h"
#include "shared/dataset/json_values.h"
#include "shared/dataset/row_scanner.h"
#include "shared/dataset/text_rows.h"

namespace stoker::dataset {
namespace {

bool is_json(std::string_view name) { return name.ends_with(".jsonl"); }
bool is_tabbed(std::string_view name) { return name.ends_with(".tsv"); }

// Brings the two values of a row into a ListRow.
class ListReader {
 public:
  ListReader(const SetRequest& set, std::string path,
             const std::function<Status(const ListRow&)>& take)
      : set_(set),
        path_(std::move(path)),
        names_(list_columns(set.as<config::ImageListDataset>())),
        delimiter_(is_tabbed(path_) ? '\t' : ','),
        json_(names_),
        take_(take) {}

  char delimiter() const { return delimiter_; }

  Status take_csv(const TextRow& row) {
    if (!places_) return take_header(row);
    STOKER_RETURN_IF_ERROR(at(row, row_.split(row.text, delimiter_)));
    std::array<FieldValue, 2> values;
    for (size_t i = 0; i < values.size(); ++i) {
      if ((*places_)[i] >= row_.size()) continue;
      const std::string_view text = trimmed(row_[(*places_)[i]]);
      if (!text.empty()) values[i] = std::as_bytes(std::span(text));
    }
    return hand_over(row, values);
  }

  Status take_json(const TextRow& row) {
    std::array<FieldValue, 2> values;
    STOKER_RETURN_IF_ERROR(at(row, json_.read(row.text, values)));
    return hand_over(row, values);
  }

 private:
  Status at(const TextRow& row, const Status& status) const {
    return status.ok() ? status : status.with_context(path_ + ": " + line_text(row.line));
  }

  Status take_header(const TextRow& row) {
    auto columns = csv_header(row.text, delimiter_);
    if (!columns) return at(row, columns.status());
    places_.emplace();
    for (size_t i = 0; i < names_.size(); ++i) {
      std::optional<size_t> place;
      for (size_t column = 0; column < columns->size(); ++column) {
        if ((*columns)[column] != names_[i]) continue;
        if (place) return set_.wrong("path", path_ + " has two columns '" + names_[i] + "'");
        place = column;
      }
      if (!place) {
        return set_.wrong(i == 0 ? "fields.image" : "fields.label",
                          path_ + " has no column '" + names_[i] + "'");
      }
      places_->at(i) = *place;
    }
    return {};
  }

  Status hand_over(const TextRow& row, const std::array<FieldValue, 2>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_missing(values[i]) || (i == 0 && !is_bytes(values[i])))
        return at(row, Status(Code::kCorrupt, "has no '" + names_[i] + "'"));
    }
    const std::string_view path = text_of(std::get<FieldBytes>(values[0]));
    // A message about it must stay one line, and the system ends a path at a NUL.
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (path.empty() || std::ranges::any_of(path, is_control))
      return at(row, Status(Code::kCorrupt, "'" + names_[0] + "' is no path"));
    return at(row, take_({.path = path, .label = values[1], .line = row.line}));
  }

  const SetRequest& set_;
  const std::string path_;
  const std::vector<std::string> names_;
  const char delimiter_;
  std::optional<std::array<size_t, 2>> places_;
  CsvRow row_;
  JsonValues json_;
  const std::function<Status(const ListRow&)>& take_;
};

}  // namespace

std::vector<std::string> list_columns(const config::ImageListDataset& list) {
  return {list.fields.image.empty() ? "path" : list.fields.image,
          list.fields.label.empty() ? "label" : list.fields.label};
}

bool is_list_name(std::string_view name) {
  return is_json(name) || is_tabbed(name) || name.ends_with(".csv");
}

Status read_list_rows(const SetRequest& set, const FileReader& reader, const FileTable& files,
                      const std::function<Status(const ListRow&)>& take) {
  ListReader list(set, files.path(0), take);
  if (is_json(files.path(0))) {
    return scan_rows(reader, files, 0, end_of_line,
                     [&list](const TextRow& row) { return list.take_json(row); });
  }
  const RowEnd row_end = [&list](std::string_view bytes) {
    return end_of_csv_row(bytes, list.delimiter());
  };
  return scan_rows(reader, files, 0, row_end,
                   [&list](const TextRow& row) { return list.take_csv(row); });
}

}  // namespace stoker::dataset
