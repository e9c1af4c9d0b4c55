// Formats numbers and tables for a terminal.
//
// Threads: pure functions; one TextTable object per thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/terminal.h"

namespace stoker::ctl {

// "1.2346", "12.35", "3.2e+08", "NaN": about `digits` (at most 7) significant digits, at most 10
// characters.
std::string format_number(double value, int digits);
// Number of decimals that format_number() prints.
int num_decimals(double value, int digits);
// A number of milliseconds, without the unit: "25.3", "0.02", and "<0.01" for less.
std::string format_milliseconds(double value);
// Always `digits` significant digits, however small the value: "0.152", "0.0031", "4e-09".
std::string format_significant(double value, int digits);
// 0.123 as "12.3".
std::string format_percent(double fraction);
// A setting in its usual notation: "0.0003", "1.5e-05".
std::string format_setting(double value);
// 1234567 as "1 234 567".
std::string format_count(uint64_t value);
// "512 B", "4.81 MB": decimal units.
std::string format_bytes(uint64_t bytes);
// "0.52 s", "4 min 2 s", "3 h 7 min", "2 d 4 h".
std::string format_duration(double seconds);
// An estimate of a duration: "40 s", "3 min 20 s", "27 min", "3 h 7 min", "2 d 4 h".
std::string format_estimate(double seconds);

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
