// Canvas: cells of characters, each a small grid of dots, to draw lines and marks on.
//
// Dots are counted from the upper left corner. With Unicode a cell is a braille letter of 2 by 4
// dots, without it a character of 1 by 2.
//
// Threads: one object per thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::ctl {

inline constexpr std::array<std::string_view, 4> kCurveColors{"\x1b[36m", "\x1b[33m", "\x1b[35m",
                                                              "\x1b[32m"};
inline constexpr std::string_view kResetColor = "\x1b[0m";

class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode);

  int dots_wide() const { return columns_ * cell_wide_; }
  int dots_high() const { return rows_ * cell_high_; }

  // What lies outside is put on the nearest border. `owner` decides the colour.
  void dot(int x, int y, int owner);
  // A whole cell, above what dots it has.
  void mark(int x, int y, int owner);
  // Straight, one dot at each step of the longer side.
  void line(int x0, int y0, int x1, int y1, int owner);

  // Without blanks at its end.
  std::string format_row(int row, bool color) const;

 private:
  struct Cell {
    uint8_t dots = 0;  // bit = y * dots a row + x
    bool marked = false;
    int owner = 0;
  };
  Cell& cell_of(int x, int y);
  std::string glyph(const Cell& cell) const;

  const int columns_;
  const int rows_;
  const bool unicode_;
  const int cell_wide_;
  const int cell_high_;
  std::vector<Cell> cells_;
};

}  // namespace stoker::ctl
