#include "ctl/canvas.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace stoker::ctl {

Canvas::Canvas(int columns, int rows, bool unicode)
    : columns_(columns),
      rows_(rows),
      unicode_(unicode),
      cell_wide_(unicode ? 2 : 1),
      cell_high_(unicode ? 4 : 2),
      cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {
  assert(columns > 0 && rows > 0);
}

Canvas::Cell& Canvas::cell_of(int x, int y) {
  const int cell = y / cell_high_ * columns_ + x / cell_wide_;
  return cells_[static_cast<size_t>(cell)];
}

void Canvas::dot(int x, int y, int owner) {
  x = std::clamp(x, 0, dots_wide() - 1);
  y = std::clamp(y, 0, dots_high() - 1);
  Cell& cell = cell_of(x, y);
  cell.dots =
      static_cast<uint8_t>(cell.dots | 1u << ((y % cell_high_) * cell_wide_ + x % cell_wide_));
  if (!cell.marked) cell.owner = owner;
}

void Canvas::mark(int x, int y, int owner) {
  Cell& cell = cell_of(std::clamp(x, 0, dots_wide() - 1), std::clamp(y, 0, dots_high() - 1));
  cell.marked = true;
  cell.owner = owner;
}

void Canvas::line(int x0, int y0, int x1, int y1, int owner) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / steps;
    dot(x0 + static_cast<int>(std::lround(part * (x1 - x0))),
        y0 + static_cast<int>(std::lround(part * (y1 - y0))), owner);
  }
}

std::string Canvas::format_row(int row, bool color) const {
  std::string text;
  size_t blanks = 0;
  for (int column = 0; column < columns_; ++column) {
    const int index = row * columns_ + column;
    const Cell& cell = cells_[static_cast<size_t>(index)];
    if (!cell.marked && cell.dots == 0) {
      ++blanks;
      continue;
    }
    text.append(blanks, ' ');
    blanks = 0;
    if (color) text += kCurveColors[static_cast<size_t>(cell.owner) % kCurveColors.size()];
    text += glyph(cell);
    if (color) text += kResetColor;
  }
  return text;
}

std::string Canvas::glyph(const Cell& cell) const {
  if (cell.marked) return unicode_ ? "●" : "o";
  if (!unicode_) return std::array<const char*, 4>{" ", "'", ".", ":"}[cell.dots & 3u];
  // Braille numbers its dots down the left column, then the right one, the lowest row last.
  constexpr std::array<int, 8> kBrailleBit{0, 3, 1, 4, 2, 5, 6, 7};
  int code = 0x2800;
  for (size_t dot = 0; dot < 8; ++dot)
    if ((cell.dots >> dot & 1) != 0) code |= 1 << kBrailleBit[dot];
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace stoker::ctl
