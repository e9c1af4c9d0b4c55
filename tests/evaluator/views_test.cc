#include <gtest/gtest.h>

#include "evaluator/canvas.h"
#include "evaluator/class_views.h"
#include "evaluator/view.h"
#include "shared/image/decoder.h"
#include "shared/metrics/event_file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

struct Pixels {
  uint32_t width = 0, height = 0;
  std::vector<std::byte> planes;

  int at(uint32_t x, uint32_t y, uint32_t channel) const {
    return static_cast<int>(planes[(channel * height + y) * width + x]);
  }
};

Pixels decoded(const std::string& png) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(png[i]);
    return value;
  };
  Pixels pixels{.width = number(16), .height = number(20), .planes = {}};
  pixels.planes.resize(size_t{3} * pixels.width * pixels.height);
  EXPECT_TRUE(
      image::Decoder()
          .decode(std::as_bytes(std::span(png)), {3, pixels.height, pixels.width}, pixels.planes)
          .ok());
  return pixels;
}

TEST(Canvas, DrawsDotsOfLettersAndNothingOutside) {
  Canvas canvas(6, 6, {255, 255, 255});
  canvas.text(0, 0, "t", {0, 0, 0});  // 7 2 2 2 2: a bar and a stem
  const auto is_black = [&](int x, int y) {
    return canvas.rgb()[static_cast<size_t>(3 * (y * 6 + x))] == 0;
  };
  EXPECT_TRUE(is_black(0, 0) && is_black(1, 0) && is_black(2, 0) && is_black(1, 4));
  EXPECT_FALSE(is_black(0, 1) || is_black(2, 4) || is_black(3, 0));
  canvas.text(-50, 3, "far outside", {0, 0, 0}, 9);
  canvas.box(4, 4, 100, 100, {0, 0, 0});
  EXPECT_TRUE(is_black(5, 5));
}

TEST(ClassViews, TheMatrixIsDarkWhereTheCountsAre) {
  const auto png = confusion_picture({{8, 0}, {8, 8}}, {{"cat"}, {"dog"}});
  ASSERT_TRUE(png.ok()) << png.status().to_string();
  const Pixels pixels = decoded(*png);
  constexpr uint32_t kCell = 32, kMargin = 46;
  const auto cell = [&](uint32_t row, uint32_t column) {
    return pixels.at(kMargin + column * kCell + kCell / 2, kMargin + row * kCell + kCell / 2, 0);
  };
  EXPECT_LT(cell(0, 0), 20) << "all of the row";
  EXPECT_EQ(cell(0, 1), 255) << "none of the row";
  EXPECT_LT(cell(1, 0), 255);
  EXPECT_EQ(cell(1, 0), cell(1, 1));
}

TEST(ClassViews, TheMatrixOfTheMostClassesFitsIntoAnEventFile) {
  const size_t count = score::kMostConfusionClasses;
  const auto png = confusion_picture(score::Confusion(count, std::vector<uint64_t>(count, 1)),
                                     std::vector<score::ClassFigures>(count));
  ASSERT_TRUE(png.ok());
  EXPECT_LT(png->size(), metrics::kMostImageBytes);
}

ShownMistake mistake(uint64_t sample, std::vector<uint8_t> planes) {
  return {.mistake = {.sample = sample, .label = 0, .prediction = 1, .confidence = 0.9, .loss = 3},
          .label = "cat",
          .prediction = "dog|bird",
          .origin = "a/b.jpg",
          .planes = std::move(planes)};
}

TEST(ClassViews, TheGridShowsThePicturesAsTheyAre) {
  // 2 x 2: red, green, blue, white; planes of red, green, blue.
  const auto colors = mistake(7, {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255});
  const auto png = mistake_picture({colors, colors}, 3, 2, 2);
  ASSERT_TRUE(png.ok());
  const Pixels pixels = decoded(*png);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 10, 0), 255);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 10, 1), 0);
  EXPECT_EQ(pixels.at(4 + 90, 4 + 10, 1), 255);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 90, 2), 255);
  EXPECT_EQ(pixels.at(4 + 90, 4 + 90, 0), 255);
  const auto grey = mistake_picture({mistake(7, {9})}, 1, 1, 1);
  ASSERT_TRUE(grey.ok());
  EXPECT_EQ(decoded(*grey).at(10, 10, 2), 9);
}

TEST(ClassViews, TheLargestGridOfNoiseFitsIntoAnEventFile) {
  std::vector<ShownMistake> many;
  uint32_t random = 1;
  for (int i = 0; i < 25; ++i) {
    std::vector<uint8_t> planes(size_t{3} * 96 * 96);
    for (uint8_t& value : planes)
      value = static_cast<uint8_t>((random = random * 1664525 + 1013904223) >> 24);
    many.push_back(mistake(static_cast<uint64_t>(i), std::move(planes)));
  }
  const auto png = mistake_picture(many, 3, 96, 96);
  ASSERT_TRUE(png.ok());
  EXPECT_LT(png->size(), metrics::kMostImageBytes);
}

TEST(ClassViews, TheTableHasALineForEachMistakeAndNoNameBreaksIt) {
  const std::string table = mistake_table({mistake(7, {}), mistake(12, {})});
  EXPECT_NE(table.find("| 7 | cat | dog bird | 0.900 | 3 | a/b.jpg |\n| 12 |"), std::string::npos)
      << table;
}

TEST(Views, AreReadBackAndThoseOfAnEarlierCheckpointOfTheStepAreGone) {
  const test::TemporaryDirectory scratch;
  const run::RunLayout layout(scratch.path());
  const View text{"val", ViewKind::kSampleText, "text"};
  const View other{"other", ViewKind::kMistakeTable, "table"};
  ASSERT_TRUE(write_views(real_files(), layout, 20, "val", {text, other}).ok());
  ASSERT_TRUE(write_views(real_files(), layout, 20, "other", {text, other}).ok());
  EXPECT_EQ(view_path(layout, 20, "val", ViewKind::kSampleText),
            scratch.path() + "/eval/artifacts/step-000000020.val.generated.txt");
  ASSERT_EQ(read_views(layout, 20, "val").size(), 1u);
  EXPECT_EQ(read_views(layout, 20, "val")[0].bytes, "text");
  EXPECT_EQ(read_views(layout, 20, "other")[0].tag(), "misclassified");
  ASSERT_TRUE(write_views(real_files(), layout, 20, "val", {}).ok());
  EXPECT_TRUE(read_views(layout, 20, "val").empty());
}

}  // namespace
}  // namespace stoker::evaluator
