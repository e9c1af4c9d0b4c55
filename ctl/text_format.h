// TextTable: a table for a terminal.
//
// Threads: one object per thread.
#pragma once

#include <string>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

// A column of a TextTable.
struct Column {
  std::string title;      // one line, or two separated by a newline
  bool left = false;      // for text; numbers are right-aligned
  bool can_drop = false;  // dropped if the table is too wide, the last such column first
  bool can_cut =
      false;  // cells are cut, with an ellipsis, down to kMinCutWidth characters, the last such column first
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void add(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }
  static constexpr size_t kMinCutWidth = 12;
  // Titles, a rule and the rows; ends with a newline. Only cells of Column::can_cut are cut, on a terminal; it
  // wraps others that do not fit.
  std::string render(const TextStyle& style) const;

 private:
  struct VisibleColumn {
    size_t index = 0;
    size_t width = 0;
  };
  std::vector<VisibleColumn> choose_columns(const TextStyle& style) const;
  std::string line_of(const std::vector<std::string>& cells,
                      const std::vector<VisibleColumn>& visible, const TextStyle& style) const;
  std::vector<std::string> title_line(size_t line) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Splits a title that is longer than ten characters and has a space into two lines of about equal
// length.
std::string wrapped_title(std::string title);

}  // namespace stoker::ctl
