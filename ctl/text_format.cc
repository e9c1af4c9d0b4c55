#include "ctl/text_format.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <ranges>

namespace stoker::ctl {

int num_decimals(double value, int digits) {
  const double size = std::abs(value);
  const int integer_digits = size < 1 ? 1 : static_cast<int>(std::log10(size)) + 1;
  return std::max(0, digits - integer_digits);
}

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-4)) {
    std::snprintf(text, sizeof text, "%.*e", std::min(digits, 3) - 1, value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", num_decimals(value, digits), value);
  }
  return text;
}

std::string format_milliseconds(double value) {
  return value > 0 && value < 0.01 ? "<0.01" : format_number(value, 3);
}

std::string format_significant(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string format_percent(double fraction) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", 100 * fraction);
  return text;
}

std::string format_setting(double value) { return format_significant(value, 4); }

std::string format_count(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ' ');
  }
  return text;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return format_number(value, 3) + " " + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 99.5) return format_number(seconds, seconds < 10 ? 2 : 1) + " s";
  const auto rounded = static_cast<uint64_t>(std::llround(std::min(seconds, 1e12)));
  const auto pair = [rounded](uint64_t large, const char* large_unit, uint64_t small,
                              const char* small_unit) {
    return std::to_string(rounded / large) + large_unit + std::to_string(rounded % large / small) +
           small_unit;
  };
  if (rounded < 3600) return pair(60, " min ", 1, " s");
  if (rounded < 86400) return pair(3600, " h ", 60, " min");
  return pair(86400, " d ", 3600, " h");
}

std::string format_estimate(double seconds) {
  if (seconds < 99.5) return std::to_string(std::max(1L, std::lround(seconds))) + " s";
  const double unit = seconds < 600 ? 10 : 60;
  std::string text = format_duration(std::round(seconds / unit) * unit);
  for (const std::string_view none : {" 0 s", " 0 min", " 0 h"})
    if (text.ends_with(none)) text.resize(text.size() - none.size());
  return text;
}

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
