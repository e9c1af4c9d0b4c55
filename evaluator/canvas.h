// Canvas: a small RGB image with functions to draw pixels, filled boxes and text.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stoker::evaluator {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
};

class Canvas {
 public:
  static constexpr int kGlyphWidth = 4;   // including the gap after the glyph
  static constexpr int kGlyphHeight = 6;  // including the gap below the glyph

  Canvas(int width, int height, Color background);

  // Pixels outside the canvas are ignored.
  void pixel(int x, int y, Color color);
  void box(int x, int y, int width, int height, Color color);
  // Draws letters (as capitals), digits and common symbols, each 3 by 5 dots of `scale` pixels.
  // Other characters are drawn as '?'.
  void text(int x, int y, std::string_view text, Color color, int scale = 1);

  int width() const { return width_; }
  int height() const { return height_; }
  std::span<const uint8_t> rgb() const { return rgb_; }

 private:
  const int width_, height_;
  std::vector<uint8_t> rgb_;
};

}  // namespace stoker::evaluator
