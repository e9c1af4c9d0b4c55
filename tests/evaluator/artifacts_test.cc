#include <gtest/gtest.h>

#include "evaluator/artifact.h"
#include "evaluator/canvas.h"
#include "evaluator/classification_artifacts.h"
#include "evaluator/sample_image.h"
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

Pixels decode(const std::string& png) {
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

TEST(SampleImageTest, EscapesMarkdownAndHtml) {
  EXPECT_EQ(escape_markdown("a <unk> dog & \"`cat`|\n"), "a &lt;unk> dog &amp; \" cat   ");
}

TEST(CanvasTest, RendersLetterPixelsAndClipsOutside) {
  Canvas canvas(6, 6, {255, 255, 255});
  canvas.text(0, 0, "t", {0, 0, 0});  // glyph rows 7 2 2 2 2: a bar and a stem
  const auto is_black = [&](int x, int y) {
    return canvas.rgb()[static_cast<size_t>(3 * (y * 6 + x))] == 0;
  };
  EXPECT_TRUE(is_black(0, 0) && is_black(1, 0) && is_black(2, 0) && is_black(1, 4));
  EXPECT_FALSE(is_black(0, 1) || is_black(2, 4) || is_black(3, 0));
  canvas.text(-50, 3, "far outside", {0, 0, 0}, 9);
  canvas.box(4, 4, 100, 100, {0, 0, 0});
  EXPECT_TRUE(is_black(5, 5));
}

TEST(ClassificationArtifactsTest, ShadesConfusionMatrixCellsByCount) {
  const auto png = confusion_matrix_image({{8, 0}, {8, 8}}, {{"cat"}, {"dog"}});
  ASSERT_TRUE(png.ok()) << png.status().to_string();
  const Pixels pixels = decode(*png);
  constexpr uint32_t kCell = 32, kMargin = 46;
  const auto cell = [&](uint32_t row, uint32_t column) {
    return pixels.at(kMargin + column * kCell + kCell / 2, kMargin + row * kCell + kCell / 2, 0);
  };
  EXPECT_LT(cell(0, 0), 20) << "all of the row";
  EXPECT_EQ(cell(0, 1), 255) << "none of the row";
  EXPECT_LT(cell(1, 0), 255);
  EXPECT_EQ(cell(1, 0), cell(1, 1));
}

TEST(ClassificationArtifactsTest, FitsLargestConfusionMatrixIntoEventFile) {
  const size_t count = eval_metrics::kMaxConfusionClasses;
  const auto png =
      confusion_matrix_image(eval_metrics::ConfusionMatrix(count, std::vector<uint64_t>(count, 1)),
                             std::vector<eval_metrics::PerClassMetrics>(count));
  ASSERT_TRUE(png.ok());
  EXPECT_LT(png->size(), metrics::kMaxImageBytes);
}

MisclassifiedExample misclassified_sample(uint64_t sample, std::vector<uint8_t> planes) {
  return {.misclassified_sample =
              {.sample = sample, .label = 0, .prediction = 1, .confidence = 0.9, .loss = 3},
          .label = "cat",
          .prediction = "dog|bird",
          .source = "a/b.jpg",
          .planes = std::move(planes)};
}

TEST(ClassificationArtifactsTest, ShowsImagesUnchangedInGrid) {
  // A 2 x 2 image of red, green, blue and white pixels, as [C, H, W].
  const auto colors = misclassified_sample(7, {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255});
  const auto png = misclassified_image({colors, colors}, 3, 2, 2);
  ASSERT_TRUE(png.ok());
  const Pixels pixels = decode(*png);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 10, 0), 255);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 10, 1), 0);
  EXPECT_EQ(pixels.at(4 + 90, 4 + 10, 1), 255);
  EXPECT_EQ(pixels.at(4 + 10, 4 + 90, 2), 255);
  EXPECT_EQ(pixels.at(4 + 90, 4 + 90, 0), 255);
  const auto gray = misclassified_image({misclassified_sample(7, {9})}, 1, 1, 1);
  ASSERT_TRUE(gray.ok());
  EXPECT_EQ(decode(*gray).at(10, 10, 2), 9);
}

TEST(ClassificationArtifactsTest, FitsLargestNoiseGridIntoEventFile) {
  std::vector<MisclassifiedExample> many;
  uint32_t random = 1;
  for (int i = 0; i < 25; ++i) {
    std::vector<uint8_t> planes(size_t{3} * 96 * 96);
    for (uint8_t& value : planes)
      value = static_cast<uint8_t>((random = random * 1664525 + 1013904223) >> 24);
    many.push_back(misclassified_sample(static_cast<uint64_t>(i), std::move(planes)));
  }
  const auto png = misclassified_image(many, 3, 96, 96);
  ASSERT_TRUE(png.ok());
  EXPECT_LT(png->size(), metrics::kMaxImageBytes);
}

TEST(ClassificationArtifactsTest, EscapesNamesInMisclassifiedTable) {
  const std::string table =
      misclassified_table({misclassified_sample(7, {}), misclassified_sample(12, {})});
  EXPECT_NE(table.find("| 7 | cat | dog bird | 0.900 | 3.000 | a/b.jpg |\n| 12 |"),
            std::string::npos)
      << table;
}

TEST(WriteArtifactsTest, ReplacesArtifactsOfEarlierCheckpointWithSameStep) {
  const test::TemporaryDirectory scratch;
  const run::RunLayout layout(scratch.path());
  const Artifact text{"val", ArtifactKind::kGeneratedText, "text"};
  const Artifact other{"other", ArtifactKind::kMisclassifiedTable, "table"};
  ASSERT_TRUE(write_artifacts(default_file_system(), layout, 20, "val", {text, other}).ok());
  ASSERT_TRUE(write_artifacts(default_file_system(), layout, 20, "other", {text, other}).ok());
  EXPECT_EQ(artifact_path(layout, 20, "val", ArtifactKind::kGeneratedText),
            scratch.path() + "/eval/artifacts/step-000000020.val.generated.txt");
  ASSERT_EQ(read_artifacts(layout, 20, "val").size(), 1u);
  EXPECT_EQ(read_artifacts(layout, 20, "val")[0].bytes, "text");
  EXPECT_EQ(read_artifacts(layout, 20, "other")[0].tag(), "misclassified");
  ASSERT_TRUE(write_artifacts(default_file_system(), layout, 20, "val", {}).ok());
  EXPECT_TRUE(read_artifacts(layout, 20, "val").empty());
}

}  // namespace
}  // namespace stoker::evaluator
