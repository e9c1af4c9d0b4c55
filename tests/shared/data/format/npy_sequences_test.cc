// Rows of arrays as variable-length sequences.
#include <string>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/sequence_fixture.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::format {
namespace {

using test::bytes_of;
using test::npy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;

class NumpySequencesTest : public testing::SequenceFixture {
 protected:
  void SetUp() override {
    write("x.npy", npy("<f4", "(2, 3, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9})));
    write("tags.npy", npy("<i8", "(2, 3)", bytes_of<int64_t>({0, -100, 4, 1, 2, 2})));
    write("n.npy", npy("<u2", "(2,)", bytes_of<uint16_t>({3, 1})));
  }

  config::DatasetConfig rows(const std::string& labels = "tags.npy",
                             const std::string& lengths = "n.npy") const {
    config::DatasetConfig config;
    config.source = config::NumpyDataset{};
    path_in(config) = path("x.npy");
    auto& numpy = source_in<config::NumpyDataset>(config);
    numpy.labels_path = path(labels);
    sequence_in(config).max_length = 3;
    if (!lengths.empty()) numpy.lengths_path = path(lengths);
    return config;
  }
};

TEST_F(NumpySequencesTest, PadsSequencesAfterTheirLength) {
  const auto dataset = opened(rows());
  EXPECT_EQ(dataset->spec(),
            (std::vector<TensorSpec>{{.name = "input", .dtype = DType::kF32, .shape = {3, 2}},
                                     {.name = "length", .dtype = DType::kI64, .shape = {}},
                                     {.name = "labels", .dtype = DType::kI64, .shape = {3}}}));
  EXPECT_EQ(dataset->max_length(), 3u);
  EXPECT_EQ(dataset->length(1), 1u);
  EXPECT_EQ(dataset->classes(), 5u);
  const Sample first = read_sample(*dataset, 0), second = read_sample(*dataset, 1);
  EXPECT_THAT(first.values<float>(0), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(first.values<int64_t>(2), ElementsAre(0, -100, 4));
  EXPECT_THAT(second.values<float>(0), ElementsAre(7, 8, 0, 0, 0, 0));
  EXPECT_THAT(second.values<int64_t>(1), ElementsAre(1));
  EXPECT_THAT(second.values<int64_t>(2), ElementsAre(1, -100, -100));
}

TEST_F(NumpySequencesTest, PadsOnlyToRequestedLength) {
  const auto dataset = opened(rows());
  const Sample read = read_in_batch(*dataset, 1, 2);
  EXPECT_THAT(read.values<float>(0), ElementsAre(7, 8, 0, 0));
  EXPECT_THAT(read.values<int64_t>(2), ElementsAre(1, -100));
}

TEST_F(NumpySequencesTest, TreatsRowsAsFullLengthWithoutLengths) {
  const auto dataset = opened(rows("tags.npy", ""));
  EXPECT_EQ(dataset->length(1), 3u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(7, 8, 9, 9, 9, 9));
}

TEST_F(NumpySequencesTest, RoundsNumbersAndAddsFeatureDimension) {
  write("x.npy", npy("<i2", "(2, 3)", bytes_of<int16_t>({1, -2, 3, 4, 5, 6})));
  const auto dataset = opened(rows());
  EXPECT_EQ(dataset->spec()[0].shape, (std::vector<int64_t>{3, 1}));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(1, -2, 3));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(4, 0, 0));
}

TEST_F(NumpySequencesTest, ReadsClassLabelsAndTargets) {
  write("y.npy", npy("|u1", "(2,)", bytes_of<uint8_t>({2, 0})));
  const auto classes = opened(rows("y.npy"));
  EXPECT_EQ(classes->spec()[2], (TensorSpec{"label", DType::kI64, {}}));
  EXPECT_THAT(read_sample(*classes, 0).values<int64_t>(2), ElementsAre(2));
  write("t.npy", npy("<f4", "(2, 2)", bytes_of<float>({1, 2, 3, 4})));
  const auto targets = opened(rows("t.npy"));
  EXPECT_EQ(targets->classes(), 0u);
  EXPECT_THAT(read_sample(*targets, 1).values<float>(2), ElementsAre(3, 4));
}

TEST_F(NumpySequencesTest, PreservesLabelsOfOtherLength) {
  write("few.npy", npy("<i4", "(2, 2)", bytes_of<int32_t>({1, -100, 3, 2})));
  const auto dataset = opened(rows("few.npy"));
  EXPECT_EQ(dataset->spec_of_length(1)[2].shape, (std::vector<int64_t>{2}));
  EXPECT_THAT(read_in_batch(*dataset, 1, 1).values<int64_t>(2), ElementsAre(3, 2));
  EXPECT_THAT(read_sample(*dataset, 0).values<int64_t>(2), ElementsAre(1, -100));
}

TEST_F(NumpySequencesTest, ReadsArraysFromArchive) {
  write("all.npz", test::zip({{"x.npy", content_of("x.npy")},
                              {"tags.npy", content_of("tags.npy")},
                              {"n.npy", content_of("n.npy")}},
                             true));
  config::DatasetConfig config;
  config.source = config::NumpyDataset{};
  path_in(config) = path("all.npz");
  fields_in(config).labels = "tags";
  fields_in(config).length = "n";
  sequence_in(config).max_length = 3;
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->length(1), 1u);
  EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(2), ElementsAre(1, -100, -100));
  const auto again = pipeline::open_indexed("train", config, index_dir(), dataset->fingerprint());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(read_sample(**again, 1).tensors, read_sample(*dataset, 1).tensors);
  EXPECT_EQ((*again)->length(0), 3u);
}

TEST_F(NumpySequencesTest, RejectsInvalidLengths) {
  write("n.npy", npy("<i8", "(2,)", bytes_of<int64_t>({3, 4})));
  expect_error(
      rows(), StatusCode::kCorrupt,
      {path("n.npy"), "the length at offset 136 is 4, not between 1 and the 3 time steps"});
  write("n.npy", npy("<i8", "(2,)", bytes_of<int64_t>({0, 3})));
  expect_error(rows(), StatusCode::kCorrupt, {"is 0, not between"});
  write("n.npy", npy("<i8", "(2,)", bytes_of<int64_t>({-1, 3})));
  expect_error(rows(), StatusCode::kCorrupt, {"is -1, not between"});
  write("n.npy", npy("<i8", "(3,)", bytes_of<int64_t>({1, 2, 3})));
  expect_error(rows(), StatusCode::kMismatch, {"2 rows of input, but 3 of lengths"});
  write("n.npy", npy("<f4", "(2,)", bytes_of<float>({1, 2})));
  expect_error(rows(), StatusCode::kInvalidArgument, {"data.train.lengths_path", "float32"});
}

TEST_F(NumpySequencesTest, RequiresMaxLengthOfRows) {
  auto config = rows();
  sequence_in(config).max_length = 4;
  expect_error(
      config, StatusCode::kInvalidArgument,
      {"data.train.sequence.max_length: must be the number of time steps of each row, got 4",
       "float32 rows of [3, 2]"});
}

TEST_F(NumpySequencesTest, RejectsInvalidClassLabels) {
  write("tags.npy", npy("<i8", "(2, 3)", bytes_of<int64_t>({0, -1, 4, 1, 2, 2})));
  expect_error(rows(), StatusCode::kCorrupt, {path("tags.npy"), "is not a class"});
  write("tags.npy", npy("<i8", "(2, 3)", bytes_of<int64_t>(std::vector<int64_t>(6, -100))));
  expect_error(rows(), StatusCode::kInvalidArgument, {"data.train.labels_path", "only -100"});
}

TEST_F(NumpySequencesTest, ReadsLabelsAndLengthsFromSeparateFiles) {
  write("x_and_n.npz",
        test::zip({{"x.npy", content_of("x.npy")}, {"n.npy", content_of("n.npy")}}, true));
  write("x_and_tags.npz",
        test::zip({{"x.npy", content_of("x.npy")}, {"tags.npy", content_of("tags.npy")}}, false));
  config::NumpyDataset numpy;
  numpy.path = path("x_and_n.npz");
  numpy.labels_path = path("tags.npy");
  numpy.fields.length = "n";
  numpy.sequence.max_length = 3;
  config::NumpyDataset other = numpy;
  other.path = path("x_and_tags.npz");
  other.labels_path = "";
  other.lengths_path = path("n.npy");
  other.fields.length = "";
  other.fields.labels = "tags";
  for (const auto& each : {numpy, other}) {
    const auto dataset = opened({.source = each});
    EXPECT_EQ(dataset->length(1), 1u);
    EXPECT_THAT(read_sample(*dataset, 1).values<int64_t>(2), ElementsAre(1, -100, -100));
  }
}

TEST_F(NumpySequencesTest, RejectsInconsistentArrayNames) {
  auto config = rows();
  fields_in(config).length = "n";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.fields.length", "lengths_path"});
  config = rows("tags.npy", "");
  fields_in(config).length = "n";
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.length", "names an array of an .npz"});
  config = rows();
  fields_in(config).label = "y";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.fields.label", "[3]"});
  fields_in(config).labels = "y";
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.labels", "cannot be combined"});
}

TEST_F(NumpySequencesTest, ReadsPlainRowsWithoutMaxLength) {
  auto config = rows("tags.npy", "");
  sequence_in(config).max_length.reset();
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->max_length(), 0u);
  EXPECT_EQ(dataset->spec()[1].name, "target");
}

}  // namespace
}  // namespace stoker::data::format
