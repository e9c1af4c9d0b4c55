#include "ctl/text_format.h"

#include <algorithm>
#include <cassert>
#include <ranges>

namespace stoker::ctl {

namespace {

constexpr size_t kGap = 2;

// Width in terminal columns, assuming that every character is one column wide. A color has no width.
size_t width_of(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = std::min(text.find('m', i), text.size() - 1);
    else if ((text[i] & 0xC0) != 0x80)
      ++width;
  }
  return width;
}

// At most `width` characters, the last of which is an ellipsis if there are more.
std::string cut_to(const std::string& text, size_t width, bool unicode) {
  if (width_of(text) <= width) return text;
  const std::string ellipsis = unicode ? "…" : "...";
  size_t kept = width - width_of(ellipsis), at = 0;
  for (; at < text.size(); ++at)
    if ((text[at] & 0xC0) != 0x80 && kept-- == 0) break;
  return text.substr(0, at) + ellipsis;
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
    // a one-line title goes into the lower line, directly above the numbers
    if (at == std::string::npos) {
      cells.push_back(line == 1 ? column.title : "");
    } else {
      cells.push_back(line == 0 ? column.title.substr(0, at) : column.title.substr(at + 1));
    }
  }
  return cells;
}

std::vector<TextTable::VisibleColumn> TextTable::choose_columns(const TextStyle& style) const {
  std::vector<VisibleColumn> visible(columns_.size());
  const auto widen = [&visible](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i)
      visible[i].width = std::max(visible[i].width, width_of(cells[i]));
  };
  for (size_t i = 0; i < visible.size(); ++i) visible[i].index = i;
  widen(title_line(0));
  widen(title_line(1));
  for (const auto& row : rows_) widen(row);
  const auto can_cut = [this](const VisibleColumn& column) {
    return columns_[column.index].can_cut && column.width > kMinCutWidth;
  };
  // Of the columns, those that can be cut with their smallest width.
  const auto excess = [&](bool is_cut) {
    size_t sum = 0;
    for (const VisibleColumn& column : visible)
      sum += (is_cut && can_cut(column) ? kMinCutWidth : column.width) + kGap;
    return sum - std::min(sum, static_cast<size_t>(std::max(style.columns, 0)));
  };
  for (size_t i = visible.size(); i-- > 0 && excess(true) > 0;)
    if (columns_[i].can_drop) visible.erase(visible.begin() + static_cast<std::ptrdiff_t>(i));
  for (VisibleColumn& column : visible | std::views::reverse)
    if (style.live && can_cut(column))
      column.width = std::max(kMinCutWidth, column.width - std::min(column.width, excess(false)));
  return visible;
}

std::string TextTable::line_of(const std::vector<std::string>& cells,
                               const std::vector<VisibleColumn>& visible,
                               const TextStyle& style) const {
  std::string line;
  for (const VisibleColumn& column : visible) {
    const std::string cell = cut_to(cells[column.index], column.width, style.unicode);
    const std::string blanks(column.width - width_of(cell), ' ');
    line += std::string(kGap, ' ');
    line += columns_[column.index].left ? cell + blanks : blanks + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string TextTable::render(const TextStyle& style) const {
  const auto visible = choose_columns(style);
  std::string out;
  for (const size_t title : {0u, 1u}) {
    const std::string line = line_of(title_line(title), visible, style);
    if (line.empty()) continue;
    out += style.color ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  for (const VisibleColumn& column : visible) {
    out += std::string(kGap, ' ');
    for (size_t i = 0; i < column.width; ++i) out += style.unicode ? "─" : "-";
  }
  out += "\n";
  for (const auto& row : rows_) out += line_of(row, visible, style) + "\n";
  return out;
}

std::string wrapped_title(std::string title) {
  constexpr size_t kMaxTitleWidth = 10;
  if (title.size() <= kMaxTitleWidth) return title;
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
