#include "evaluator/canvas.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace stoker::evaluator {
namespace {

// Five octal digits, one per row from the top; in each digit, bit 4 is the left dot, 2 the middle,
// 1 the right.
struct Glyph {
  char sign;
  std::string_view rows;
};
constexpr auto kGlyphs = std::to_array<Glyph>(
    {{'A', "25755"}, {'B', "65656"},  {'C', "34443"}, {'D', "65556"}, {'E', "74647"},
     {'F', "74644"}, {'G', "34553"},  {'H', "55755"}, {'I', "72227"}, {'J', "11152"},
     {'K', "55655"}, {'L', "44447"},  {'M', "57755"}, {'N', "65555"}, {'O', "25552"},
     {'P', "65644"}, {'Q', "25563"},  {'R', "65655"}, {'S', "34216"}, {'T', "72222"},
     {'U', "55557"}, {'V', "55552"},  {'W', "55775"}, {'X', "55255"}, {'Y', "55222"},
     {'Z', "71247"}, {'0', "75557"},  {'1', "26227"}, {'2', "71747"}, {'3', "71717"},
     {'4', "55711"}, {'5', "74717"},  {'6', "74757"}, {'7', "71122"}, {'8', "75757"},
     {'9', "75717"}, {' ', "00000"},  {'-', "00700"}, {'+', "02720"}, {'.', "00002"},
     {',', "00024"}, {':', "02020"},  {'>', "42124"}, {'<', "12421"}, {'/', "11244"},
     {'_', "00007"}, {'%', "51245"},  {'#', "57575"}, {'(', "24442"}, {')', "21112"},
     {'=', "07070"}, {'\'', "22000"}, {'&', "25653"}, {'?', "71202"}});

std::string_view rows_of(char sign) {
  const char capital = static_cast<char>(std::toupper(static_cast<unsigned char>(sign)));
  const auto found = std::ranges::find(kGlyphs, capital, &Glyph::sign);
  return found == kGlyphs.end() ? kGlyphs.back().rows : found->rows;
}

}  // namespace

Canvas::Canvas(int width, int height, Color background)
    : width_(width), height_(height), rgb_(size_t{3} * static_cast<size_t>(width * height)) {
  box(0, 0, width, height, background);
}

void Canvas::pixel(int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  uint8_t* const at = rgb_.data() + size_t{3} * static_cast<size_t>(y * width_ + x);
  at[0] = color.red;
  at[1] = color.green;
  at[2] = color.blue;
}

void Canvas::box(int x, int y, int width, int height, Color color) {
  for (int row = 0; row < height; ++row)
    for (int column = 0; column < width; ++column) pixel(x + column, y + row, color);
}

void Canvas::text(int x, int y, std::string_view text, Color color, int scale) {
  for (const char sign : text) {
    const std::string_view rows = rows_of(sign);
    for (int row = 0; row < 5; ++row) {
      const int dots = rows[static_cast<size_t>(row)] - '0';
      for (int column = 0; column < 3; ++column)
        if ((dots & (4 >> column)) != 0)
          box(x + column * scale, y + row * scale, scale, scale, color);
    }
    x += kGlyphWidth * scale;
  }
}

}  // namespace stoker::evaluator
