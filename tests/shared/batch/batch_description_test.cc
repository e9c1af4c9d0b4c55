#include "shared/batch/batch_description.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/support/temporary_directory.h"

namespace stoker::batch {
namespace {

using testing::HasSubstr;

std::vector<uint64_t> numbers_of(const BatchDescription& description) {
  std::vector<uint64_t> numbers;
  for (const SampleDescription& sample : description.samples) numbers.push_back(sample.sample);
  return numbers;
}

// Two micro-batches of five samples per step.
class BatchDescriptionTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = config::parse_config(
        "data:\n  train: {format: synthetic, num_samples: 40, input_shape: [6], num_classes: 3}\n"
        "task: {name: classification}\nmodel: {name: mlp}\n"
        "train: {max_steps: 10, micro_batch_size: 5, gradient_accumulation_steps: 2}\n",
        "test", {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    ASSERT_TRUE(write_file_atomically(default_file_system(), layout_.config_file(),
                                      config::to_yaml(*config))
                    .ok());
    ASSERT_TRUE(data::pipeline::open_dataset("train", config->data, layout_.index_dir(), {}).ok());
  }
  BatchDescription describe(const DescribeOptions& options = {}) const {
    const auto description = describe_batch(layout_, 3, options);
    EXPECT_TRUE(description.ok()) << description.status().to_string();
    return description.ok() ? *description : BatchDescription();
  }

  const test::TemporaryDirectory folder_;
  const run::RunLayout layout_{folder_.path()};
};

TEST_F(BatchDescriptionTest, ConsistsOfItsParts) {
  const BatchDescription all = describe();
  ASSERT_EQ(all.samples.size(), 10u);
  EXPECT_FALSE(all.maybe_next.has_value());
  std::vector<uint64_t> numbers;
  uint64_t next = 0;
  for (const uint64_t end : {4, 8, 10}) {  // across the micro-batches
    const BatchDescription part = describe({.first_sample = next, .max_samples = 4});
    EXPECT_EQ(part.first_sample, next);
    EXPECT_EQ(part.samples.front().row, next % 5);
    for (const uint64_t number : numbers_of(part)) numbers.push_back(number);
    EXPECT_EQ(part.maybe_next.has_value(), end < 10);
    next = part.maybe_next.value_or(10);
    EXPECT_EQ(next, end);
  }
  EXPECT_EQ(numbers, numbers_of(all));
}

TEST_F(BatchDescriptionTest, HasNoBatchInAsynchronousRun) {
  auto config = config::load_config(layout_.config_file(), {});
  ASSERT_TRUE(config.ok());
  config->cluster.replicas = config::ReplicaMode::kAsync;
  ASSERT_TRUE(
      write_file_atomically(default_file_system(), layout_.config_file(), config::to_yaml(*config))
          .ok());
  EXPECT_THAT(describe_batch(layout_, 3).status().message(), HasSubstr("no single batch"));
}

TEST_F(BatchDescriptionTest, EndsBeforeSampleAtWhichItIsStopped) {
  int calls = 0;
  const BatchDescription part = describe({.should_stop = [&] { return ++calls > 3; }});
  EXPECT_EQ(part.samples.size(), 3u);
  EXPECT_EQ(part.maybe_next, 3u);
  EXPECT_EQ(describe({.first_sample = 3}).samples.size(), 7u);
  const auto none = describe_batch(layout_, 3, {.should_stop = [] { return true; }});
  EXPECT_EQ(none.status().code(), StatusCode::kCancelled);
}

TEST_F(BatchDescriptionTest, RejectsLengthsThatOverflow) {
  BatchDescription written = describe();
  written.samples[0].length = 1;
  written.samples[0].padded_to = uint64_t{1} << 63;
  EXPECT_EQ(parse_batch_description(to_json(written)).status().code(), StatusCode::kCorrupt);
  written.samples[0].length = 9;
  written.samples[0].padded_to = 8;
  EXPECT_EQ(parse_batch_description(to_json(written)).status().code(), StatusCode::kCorrupt);
}

TEST_F(BatchDescriptionTest, HasNoSampleBehindTheLast) {
  const auto none = describe_batch(layout_, 3, {.first_sample = 10});
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.status().message(), HasSubstr("step 3 has 10 samples"));
}

TEST_F(BatchDescriptionTest, JsonIsReadBack) {
  BatchDescription written = describe();
  written.samples[0].dataset = "val";
  written.samples[1].transforms = "flip";
  written.samples[2].length = 3;
  written.samples[2].padded_to = 8;
  written.samples[3].maybe_replaced_sample = 17;
  const std::string json = to_json(written);
  const auto read = parse_batch_description(json);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), json);
  EXPECT_EQ(read->samples[3].maybe_replaced_sample, 17u);
  EXPECT_EQ(parse_batch_description("{}").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(parse_batch_description("[]").status().code(), StatusCode::kCorrupt);
}

TEST_F(BatchDescriptionTest, JsonIsNotLongerThanPermitted) {
  const BatchDescription all = describe();
  const std::string complete = to_json(all);
  int num_of_several = 0;
  for (const size_t max_bytes : {size_t{1}, complete.size() / 2, complete.size() - 1}) {
    const auto part = parse_batch_description(to_json(all, max_bytes));
    ASSERT_TRUE(part.ok());
    ASSERT_FALSE(part->samples.empty()) << "at least one";
    ASSERT_LT(part->samples.size(), 10u);
    EXPECT_EQ(part->maybe_next, part->samples.size());
    if (part->samples.size() > 1) {
      ++num_of_several;
      EXPECT_LE(to_json(all, max_bytes).size(), max_bytes);
    }
  }
  EXPECT_EQ(num_of_several, 2);
}

// A file name can be any bytes.
TEST_F(BatchDescriptionTest, JsonIsValidUtf8) {
  BatchDescription description = describe();
  description.samples[0].file = "a\xff\"b";
  EXPECT_TRUE(parse_batch_description(to_json(description)).ok());
}

}  // namespace
}  // namespace stoker::batch
