#include "shared/run/batch_sizes.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

config::TrainConfig sizes(int64_t micro_batch_size, int64_t gradient_accumulation_steps) {
  config::TrainConfig config;
  config.micro_batch_size = micro_batch_size;
  config.gradient_accumulation_steps = gradient_accumulation_steps;
  return config;
}

TEST(BatchSizesTest, AreThoseOfConfigurationWithoutChange) {
  const BatchSize size = batch_size_at({}, 7, sizes(4, 2));
  EXPECT_EQ(size.ticket_after(7), 14u);
  EXPECT_EQ(size.samples_after(7), 56u);
}

// 10 steps of 2 x 4 samples, 5 steps of 1 x 16, then steps of 3 x 4.
TEST(BatchSizesTest, ApplyToTheStepsThatHadThem) {
  BatchSizes changed;
  change_batch_size(changed, sizes(4, 2), sizes(16, 1), 10, 5);
  change_batch_size(changed, sizes(16, 1), sizes(4, 3), 15, 40);
  const auto now = sizes(4, 3);
  const auto expect = [&](uint64_t steps, uint64_t ticket, uint64_t samples) {
    const BatchSize size = batch_size_at(changed, steps, now);
    EXPECT_EQ(size.ticket_after(steps), ticket) << steps;
    EXPECT_EQ(size.samples_after(steps), samples) << steps;
  };
  expect(0, 0, 0);
  expect(9, 18, 72);
  expect(10, 5, 80);
  expect(14, 9, 80 + 4 * 16);
  expect(15, 40, 80 + 5 * 16);
  expect(17, 46, 80 + 5 * 16 + 2 * 12);
}

TEST(BatchSizesTest, ReplacesSizeThatNoStepHad) {
  BatchSizes changed;
  change_batch_size(changed, sizes(4, 1), sizes(8, 1), 10, 5);
  change_batch_size(changed, sizes(8, 1), sizes(2, 1), 10, 20);
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed.back().micro_batch_size, 2u);
  EXPECT_EQ(changed.back().samples_before, 40u);
}

TEST(BatchSizesTest, AreReadAsWritten) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "batch_sizes.json";
  EXPECT_TRUE(read_batch_sizes(path)->empty());
  BatchSizes changed;
  change_batch_size(changed, sizes(4, 2), sizes(16, 1), 10, 5);
  ASSERT_TRUE(write_batch_sizes(default_file_system(), path, changed).ok());
  EXPECT_EQ(*read_batch_sizes(path), changed);
  ASSERT_TRUE(write_batch_sizes(default_file_system(), path, {}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(BatchSizesTest, RejectsOtherContents) {
  for (
      const char* const text :
      {"", "{}", "[1]", R"([{"steps_before":0}])",
       R"([{"steps_before":1,"first_ticket":0,"samples_before":0,"micro_batch_size":1,"gradient_accumulation_steps":1}])",
       R"([{"steps_before":0,"first_ticket":0,"samples_before":0,"micro_batch_size":0,"gradient_accumulation_steps":1}])"})
    EXPECT_EQ(parse_batch_sizes(text, "file").status().code(), StatusCode::kCorrupt) << text;
}

}  // namespace
}  // namespace stoker::run
