// TextTable: columns of text, as wide as they need.
//
// Threads: one object per thread.
#pragma once

#include <string>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

struct Column {
  std::string title;      // of one line, or of two with a newline between them
  bool left = false;      // words stand left, numbers right
  bool can_drop = false;  // left out where the table is too wide, the last such column first
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }
  // Titles, a rule, the rows; ends with a newline. Nothing is cut: a cell that does not fit is for
  // the terminal to wrap.
  std::string render(const TextStyle& style) const;

 private:
  struct Shown {
    size_t column = 0;
    size_t width = 0;
  };
  std::vector<Shown> choose_columns(int columns) const;
  std::string line_of(const std::vector<std::string>& cells, const std::vector<Shown>& shown) const;
  std::vector<std::string> title_line(size_t line) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A title on two lines of about the same length where it is longer than ten characters and has a
// space.
std::string wrapped_title(std::string title);

}  // namespace stoker::ctl
