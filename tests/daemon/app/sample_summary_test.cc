#include "daemon/app/sample_summary.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::app {
namespace {

using testing::HasSubstr;

template <typename T>
std::vector<std::byte> size_in_bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

uint32_t number_at(const std::string& png, size_t at) {
  uint32_t number = 0;
  for (size_t i = at; i < at + 4; ++i) number = number << 8 | static_cast<uint8_t>(png[i]);
  return number;
}

TEST(SampleSummaryTest, TilesImagesAndShowsLabelNames) {
  const std::vector<TensorSpec> spec = {{"input", DType::kU8, {3, 4, 5}},
                                        {"label", DType::kI64, {}}};
  const auto views = summarize_samples(
      spec, {size_in_bytes(std::vector<uint8_t>(3 * 60, 9)), size_in_bytes<int64_t>({1, 0, 7})}, 3,
      {"cat", "dog"});
  ASSERT_TRUE(views.ok()) << views.status().message();
  EXPECT_EQ(views->table,
            "| sample | input | label |\n|---|---|---|\n"
            "| 0 | in the image | 1 (dog) |\n"
            "| 1 | in the image | 0 (cat) |\n"
            "| 2 | in the image | 7 |\n");
  ASSERT_GT(views->png.size(), 24u);
  EXPECT_EQ(number_at(views->png, 16), 3 * 5 + 2 * 2u) << "with a gap between them";
  EXPECT_EQ(number_at(views->png, 20), 4u);
}

TEST(SampleSummaryTest, WrapsImagesIntoRows) {
  const std::vector<TensorSpec> spec = {{"input", DType::kU8, {1, 300, 600}}};
  const auto views = summarize_samples(spec, {std::vector<std::byte>(3 * 300 * 600)}, 3, {});
  ASSERT_TRUE(views.ok());
  EXPECT_EQ(number_at(views->png, 16), 600u);
  EXPECT_EQ(number_at(views->png, 20), 3 * 300 + 2 * 2u);
}

TEST(SampleSummaryTest, EscapesTextForMarkdownTable) {
  const std::vector<TensorSpec> spec = {{"tokens", DType::kU8, {6}}};
  const auto views =
      summarize_samples(spec, {size_in_bytes<char>({'a', '|', '\n', '`', 'b', ' '})}, 1, {});
  ASSERT_TRUE(views.ok());
  EXPECT_THAT(views->table, HasSubstr("| 0 | `a   b ` |\n"));
  EXPECT_TRUE(views->png.empty());
}

TEST(SampleSummaryTest, TruncatesLongVectors) {
  const std::vector<TensorSpec> spec = {{"input", DType::kF32, {10}}, {"target", DType::kF32, {2}}};
  const auto views = summarize_samples(
      spec, {size_in_bytes(std::vector<float>(10, 0.5f)), size_in_bytes<float>({1.25f, -3e6f})}, 1,
      {});
  ASSERT_TRUE(views.ok());
  EXPECT_THAT(views->table, HasSubstr("| 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 … | 1.25 -3e+06 |"));
}

}  // namespace
}  // namespace stoker::app
