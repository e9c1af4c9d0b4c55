// Variable-length sequences in TFRecord files: lists of Examples, steps of SequenceExamples.
#include <string>

#include <gtest/gtest.h>

#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/sequence_fixture.h"

namespace stoker::data::format {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TfrecordSequencesTest : public SequenceFixture {
 protected:
  config::DatasetConfig tfrecord(int64_t max_length) const {
    config::DatasetConfig config;
    config.source = config::TfrecordDataset{};
    path_in(config) = path("data.tfrecord");
    if (max_length > 0) sequence_in(config).max_length = max_length;
    return config;
  }
  // Sequences of pairs of numbers, with a class label.
  config::DatasetConfig frames(int64_t max_length) const {
    config::DatasetConfig config = tfrecord(max_length);
    fields_in(config).input = {"frames"};
    record_in(config).input_shape = {2};
    fields_in(config).label = "word";
    return config;
  }
  config::DatasetConfig tagged(int64_t max_length) const {
    config::DatasetConfig config = tfrecord(max_length);
    fields_in(config).input_ids = "ids";
    fields_in(config).labels = "tags";
    return config;
  }
  // The error of opening a dataset with this record.
  std::string error_text(const std::string& record, const config::DatasetConfig& config) const {
    write("data.tfrecord", framed(record));
    const auto dataset = open(config);
    return dataset.ok() ? "nothing" : dataset.status().message();
  }
};

TEST_F(TfrecordSequencesTest, PadsListsOfExampleAndReturnsLength) {
  write("data.tfrecord",
        framed(example(
            {{"frames", floats_feature({1, 2, 3, 4, 5, 6})}, {"word", ints_feature({1})}})) +
            framed(example({{"word", ints_feature({0})}, {"frames", ints_feature({7, 8})}})));
  const auto dataset = opened(frames(4));
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{"input", DType::kF32, {4, 2}}));
  EXPECT_EQ(dataset->max_length(), 4u);
  EXPECT_EQ(dataset->length(0), 3u);
  EXPECT_EQ(dataset->length(1), 1u);
  EXPECT_EQ(dataset->classes(), 2u);
  const Sample first = read_sample(*dataset, 0);
  EXPECT_THAT(first.values<float>(0), ElementsAre(1, 2, 3, 4, 5, 6, 0, 0));
  EXPECT_THAT(first.values<int64_t>(1), ElementsAre(3));
  EXPECT_THAT(first.values<int64_t>(2), ElementsAre(1));
  const Sample second = read_in_batch(*dataset, 1, 2);
  EXPECT_THAT(second.values<float>(0), ElementsAre(7, 8, 0, 0));
  EXPECT_THAT(second.values<int64_t>(2), ElementsAre(0));
}

TEST_F(TfrecordSequencesTest, ReadsStepsOfSequenceExampleAsTimeSteps) {
  write("data.tfrecord",
        framed(sequence_example({{"word", bytes_feature("yes")}},
                                {{"frames", {floats_feature({1, 2}), floats_feature({3, 4})}},
                                 {"others", {bytes_feature("x")}}})) +
            framed(sequence_example({{"word", bytes_feature("no")}},
                                    {{"frames", {floats_feature({5, 6})}}})));
  const auto dataset = opened(frames(3));
  EXPECT_THAT(dataset->class_names(), ElementsAre("no", "yes"));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(1, 2, 3, 4, 0, 0));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(1));
  EXPECT_EQ(dataset->length(1), 1u);
}

// golden/make_tfrecords.py generates the file.
TEST_F(TfrecordSequencesTest, ReadsSequencesWrittenByTensorFlow) {
  auto config = frames(4);
  path_in(config) =
      std::string(STOKER_SOURCE_DIR) + "/tests/shared/data/format/golden/sequences.tfrecord";
  const auto dataset = opened(config);
  EXPECT_THAT(dataset->class_names(), ElementsAre("cat", "dog", "eel"));
  ASSERT_EQ(dataset->size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(dataset->length(i), i + 1);
    const Sample read = read_sample(*dataset, i);
    for (uint64_t t = 0; t < 4; ++t) {
      EXPECT_EQ(read.values<float>(0)[2 * t], t <= i ? static_cast<float>(i) : 0) << i << ' ' << t;
      EXPECT_EQ(read.values<float>(0)[2 * t + 1], t <= i ? static_cast<float>(t) : 0);
    }
    EXPECT_THAT(read.values<int64_t>(2), ElementsAre(static_cast<int64_t>(i % 3)));
  }
  fields_in(config).label.clear();
  fields_in(config).labels = "tags";
  EXPECT_THAT(read_sample(*opened(config), 3).values<int64_t>(2), ElementsAre(0, 1, 0, 1));
}

TEST_F(TfrecordSequencesTest, ReadsPerStepLabelsFromListsAndSteps) {
  write("data.tfrecord",
        framed(example({{"ids", ints_feature({70000, 1})}, {"tags", ints_feature({0, -100})}})) +
            framed(sequence_example({}, {{"ids", {ints_feature({5}), ints_feature({6})}},
                                         {"tags", {ints_feature({4}), ints_feature({2})}}})));
  const auto dataset = opened(tagged(3));
  EXPECT_EQ(dataset->classes(), 5u);
  EXPECT_THAT(read_sample(*dataset, 0).values<int32_t>(0), ElementsAre(70000, 1, 0));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(0, -100, -100));
  EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(2), ElementsAre(4, 2, -100));
}

TEST_F(TfrecordSequencesTest, ReadsFixedLengthSequenceExampleAsInput) {
  write("data.tfrecord",
        framed(sequence_example({{"word", ints_feature({1})}},
                                {{"frames", {floats_feature({1, 2}), floats_feature({3, 4})}}})));
  auto config = frames(0);
  record_in(config).input_shape = {2, 2};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(0), ElementsAre(1, 2, 3, 4));
}

TEST_F(TfrecordSequencesTest, RejectsTruncatesOrDropsLongSequences) {
  write("data.tfrecord",
        framed(example({{"frames", floats_feature({1, 2, 3, 4})}, {"word", ints_feature({1})}})) +
            framed(example({{"frames", floats_feature({5, 6})}, {"word", ints_feature({0})}})));
  auto config = frames(1);
  expect_error(config, StatusCode::kCorrupt,
               {"data.tfrecord: record at offset 0: has 2 time steps; 1 of 2 are longer than "
                "data.train.sequence.max_length (1)"});
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(0), ElementsAre(1, 2));
  sequence_in(config).on_overflow = config::OnOverflow::kDrop;
  EXPECT_EQ(opened(config)->size(), 1u);
}

TEST_F(TfrecordSequencesTest, TreatsSequenceWithoutTimeStepAsIncomplete) {
  const std::string empty = sequence_example({{"word", ints_feature({1})}}, {{"frames", {}}});
  EXPECT_THAT(error_text(empty, frames(2)), HasSubstr("has no input 'frames'"));
  EXPECT_THAT(
      error_text(example({{"word", ints_feature({1})}, {"frames", floats_feature({})}}), frames(2)),
      HasSubstr("has no input 'frames'"));
}

TEST_F(TfrecordSequencesTest, RejectsMismatchedStepsWithRecord) {
  const auto of = [](const std::vector<std::string>& steps) {
    return sequence_example({{"word", ints_feature({1})}}, {{"frames", steps}});
  };
  EXPECT_THAT(error_text(of({floats_feature({1, 2}), floats_feature({3})}), frames(2)),
              HasSubstr("record at offset 0: feature 'frames': must have 2 numbers in each step, "
                        "got 1 in step 1"));
  EXPECT_THAT(error_text(of({floats_feature({1, 2, 3, 4})}), frames(2)),
              HasSubstr("must have 2 numbers in each step, got 4 in step 0"));
  EXPECT_THAT(error_text(of({bytes_feature("ab")}), frames(2)),
              HasSubstr("must have numbers in its steps, got bytes"));
  EXPECT_THAT(error_text(of({floats_feature({1, 2}), ints_feature({1, 2})}), frames(2)),
              HasSubstr("has floats in some steps and integers in others"));
  EXPECT_THAT(
      error_text(example({{"frames", floats_feature({1, 2, 3})}, {"word", ints_feature({1})}}),
                 frames(2)),
      HasSubstr("has 3 numbers, which is not a multiple of the 2 of a time step"));
  EXPECT_THAT(
      error_text(sequence_example({{"frames", floats_feature({1, 2})}, {"word", ints_feature({1})}},
                                  {{"frames", {floats_feature({1, 2})}}}),
                 frames(2)),
      HasSubstr("feature 'frames' occurs twice"));
}

TEST_F(TfrecordSequencesTest, RejectsListOfStepsAsClassLabel) {
  auto config = frames(0);
  record_in(config).input_shape = {2};
  EXPECT_THAT(error_text(sequence_example({{"frames", floats_feature({1, 2})}},
                                          {{"word", {ints_feature({1})}}}),
                         config),
              HasSubstr("is a list of steps, but one value is needed"));
}

TEST_F(TfrecordSequencesTest, DetectsFlippedByteAtIndexingOrReading) {
  const std::string whole =
      framed(sequence_example({{"word", ints_feature({1})}},
                              {{"frames", {floats_feature({1, 2}), floats_feature({3, 4})}}}));
  for (size_t position = 0; position < whole.size(); ++position) {
    std::string corrupted = whole;
    corrupted[position] = static_cast<char>(corrupted[position] ^ 0x10);
    write("data.tfrecord", corrupted);
    const auto dataset = open(frames(2));
    const Status status = dataset.ok() ? read_sample(**dataset, 0).status : dataset.status();
    EXPECT_TRUE(status.code() == StatusCode::kCorrupt ||
                status.code() == StatusCode::kInvalidArgument)
        << position << ": " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("data.tfrecord")) << position;
  }
}

TEST_F(TfrecordSequencesTest, RejectsStepLengthBeyondRecord) {
  const std::string steps = message(1, floats_feature({1, 2}));
  for (const uint64_t claimed : {uint64_t{1000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    const std::string entry = message(1, "frames") + varint(2 << 3 | 2) + varint(claimed) + steps;
    EXPECT_THAT(error_text(example({{"word", ints_feature({1})}}) + message(2, message(1, entry)),
                           frames(2)),
                HasSubstr("record at offset 0"));
  }
}

}  // namespace
}  // namespace stoker::data::format
