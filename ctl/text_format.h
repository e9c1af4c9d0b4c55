// Numbers, foreign text and tables as people read them on a terminal.
//
// Threads: functions of their arguments; one object per thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

// "1.2346", "12.35", "3.2e+08", "NaN": about `digits` (at most 7) significant digits, never more
// than 10 characters.
std::string format_number(double value, int digits);
// How many of these stand behind the point.
int num_decimals(double value, int digits);
// All of `digits` significant ones, however small the value: "0.152", "0.0031", "4e-09".
std::string format_significant(double value, int digits);
// The fewest digits that read back as the same number.
std::string format_shortest(double value);
// 0.123 as "12.3".
std::string format_percent(double share);
// A setting as a person would write it: "0.0003", "1.5e-05".
std::string format_setting(double value);
// 1234567 as "1 234 567".
std::string format_count(uint64_t value);
// "512 B", "4.81 MB": decimal units, as file managers and disks count.
std::string format_bytes(uint64_t bytes);
// "0.52 s", "4 min 2 s", "3 h 7 min", "2 d 4 h".
std::string format_duration(double seconds);

// Text that somebody else wrote (a file's name, a reason), with what would move a terminal's cursor
// or change its colours replaced by '?'.
std::string printable(std::string_view text);

// TextTable: columns of text, as wide as they need.
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
