#include "ctl/text_table.h"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace stoker::ctl {
namespace {

constexpr size_t kGap = 2;

// Columns of the terminal, taking each character for one wide.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::string> TextTable::title_line(size_t line) const {
  std::vector<std::string> cells;
  for (const Column& column : columns_) {
    const size_t at = column.title.find('\n');
    if (at == std::string::npos) {  // of one line: the lower one, just above the numbers
      cells.push_back(line == 1 ? column.title : "");
    } else {
      cells.push_back(line == 0 ? column.title.substr(0, at) : column.title.substr(at + 1));
    }
  }
  return cells;
}

std::vector<TextTable::Shown> TextTable::choose_columns(int columns) const {
  std::vector<Shown> shown(columns_.size());
  const auto widen = [&shown](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i)
      shown[i].width = std::max(shown[i].width, width_of(cells[i]));
  };
  for (size_t i = 0; i < shown.size(); ++i) shown[i].column = i;
  widen(title_line(0));
  widen(title_line(1));
  for (const auto& row : rows_) widen(row);
  const auto too_wide = [&shown, columns] {
    size_t sum = 0;
    for (const Shown& one : shown) sum += one.width + kGap;
    return sum > static_cast<size_t>(std::max(columns, 0));
  };
  for (size_t i = shown.size(); i-- > 0 && too_wide();)
    if (columns_[i].can_drop) shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(i));
  return shown;
}

std::string TextTable::line_of(const std::vector<std::string>& cells,
                               const std::vector<Shown>& shown) const {
  std::string line;
  for (const Shown& one : shown) {
    const std::string& cell = cells[one.column];
    const std::string blanks(one.width - width_of(cell), ' ');
    line += std::string(kGap, ' ');
    line += columns_[one.column].left ? cell + blanks : blanks + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string TextTable::render(const TextStyle& style) const {
  const auto shown = choose_columns(style.columns);
  std::string out;
  for (const size_t title : {0u, 1u}) {
    const std::string line = line_of(title_line(title), shown);
    if (line.empty()) continue;
    out += style.color ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  for (const Shown& one : shown) {
    out += std::string(kGap, ' ');
    for (size_t i = 0; i < one.width; ++i) out += style.unicode ? "─" : "-";
  }
  out += "\n";
  for (const auto& row : rows_) out += line_of(row, shown) + "\n";
  return out;
}

std::string wrapped_title(std::string title) {
  constexpr size_t kShort = 10;
  if (title.size() <= kShort) return title;
  size_t best = std::string::npos;
  size_t min = title.size();
  for (size_t at = title.find(' '); at != std::string::npos; at = title.find(' ', at + 1)) {
    const size_t longer = std::max(at, title.size() - at - 1);
    if (longer < min) {
      min = longer;
      best = at;
    }
  }
  if (best != std::string::npos) title[best] = '\n';
  return title;
}

}  // namespace stoker::ctl
