// Reading labels without their samples, class counts, and balanced class weights.
#include "shared/data/record/class_counts.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using testing::read_sample;

// ---- Labels, for each format

class ReadLabelsTest : public testing::FolderFixture,
                       public ::testing::WithParamInterface<testing::SmallDataset> {
 protected:
  static std::vector<int64_t> labels_of(const Dataset& data) {
    std::vector<int64_t> labels(data.size(), -1);
    // Two calls, so that the second does not start at sample 0.
    const auto first = std::span(labels).first(labels.size() / 3);
    EXPECT_TRUE(data.read_labels(0, first).ok());
    EXPECT_TRUE(data.read_labels(first.size(), std::span(labels).subspan(first.size())).ok());
    return labels;
  }
  static bool has_labels() {
    static const std::set<std::string_view> kWithoutLabels{"text", "tokens", "tar_text",
                                                           "jsonl_sequences", "npy_sequences"};
    return !kWithoutLabels.contains(GetParam().name);
  }
  static void expect_those_of_the_samples(const Dataset& data) {
    if (!has_labels()) {
      std::vector<int64_t> labels(1);
      EXPECT_EQ(data.read_labels(0, labels).code(), StatusCode::kNotFound);
      return;
    }
    const auto label = std::ranges::find(data.spec(), "label", &TensorSpec::name);
    ASSERT_NE(label, data.spec().end());
    const auto index = static_cast<size_t>(label - data.spec().begin());
    const std::vector<int64_t> labels = labels_of(data);
    ASSERT_FALSE(labels.empty());
    for (uint64_t sample = 0; sample < data.size(); ++sample)
      ASSERT_EQ(labels[sample], read_sample(data, sample).values<int64_t>(index)[0]) << sample;
  }
};

TEST_P(ReadLabelsTest, ReturnsLabelsOfSamplesOrNotFound) {
  const auto opened = open(GetParam().write(path("set")));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  expect_those_of_the_samples(**opened);
}

TEST_P(ReadLabelsTest, ReturnsLabelsOfSelectedRange) {
  config::DatasetConfig config = GetParam().write(path("set"));
  config.skip_samples = 7;
  config.max_samples = 20;
  const auto opened = open(config);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  expect_those_of_the_samples(**opened);
}

TEST_P(ReadLabelsTest, ReturnsLabelsOfAllMixtureComponents) {
  config::DatasetConfig range = GetParam().write(path("set"));
  range.max_samples = 11;
  config::DatasetConfig mixture;
  mixture.source = config::Concat{{"part", "whole"}};
  const auto opened = pipeline::open_dataset(
      "train", {{"train", mixture}, {"part", range}, {"whole", GetParam().write(path("set"))}},
      index_dir(), {});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  expect_those_of_the_samples(**opened);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReadLabelsTest, ::testing::ValuesIn(testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Counts

class ClassCountsTest : public testing::FolderFixture {};

TEST_F(ClassCountsTest, CountsSamplesPerClass) {
  std::string rows = "x,y\n";
  for (const int label : {2, 0, 2, 4, 2, 0}) rows += "1," + std::to_string(label) + "\n";
  write("data", rows);
  config::CsvDataset csv;
  csv.path = path("data");
  csv.record.num_classes = 6;
  csv.record.fields.label = "y";
  const auto data = open({.source = csv});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(*count_classes(**data), ElementsAre(2, 0, 3, 0, 1, 0));
}

TEST_F(ClassCountsTest, CountsLabelsAcrossSeveralReads) {
  const auto data = open({.source = config::SyntheticDataset{
                              .num_samples = 200'000, .input_shape = {1}, .num_classes = 3}});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(*count_classes(**data), ElementsAre(66'667, 66'667, 66'666));
}

TEST_F(ClassCountsTest, IgnoresInvalidLabel) {
  const auto record = [](char label) { return std::string(1, label) + std::string(3072, 'x'); };
  write("data", record(9) + record(10) + record(9));
  const auto data = open({.source = config::CifarDataset{.path = path("data"), .transforms = {}}});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_THAT(*count_classes(**data), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 2));
}

TEST_F(ClassCountsTest, ReportsNotFoundWithoutLabels) {
  write("text", std::string(100, 'a'));
  const auto data =
      open({.source = config::TextDataset{.path = path("text"), .sequence = {.block_size = 9}}});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(count_classes(**data).status().code(), StatusCode::kNotFound);
}

// ---- Weights

// scikit-learn's compute_class_weight("balanced") returns n / (classes * n of the class).
TEST(BalancedWeightsTest, MatchesScikitLearnFormula) {
  const std::vector<double> counts{6, 1, 2, 3};
  EXPECT_THAT(balanced_weights(counts),
              ElementsAre(12.0 / (4 * 6), 12.0 / (4 * 1), 12.0 / (4 * 2), 12.0 / (4 * 3)));
}

TEST(BalancedWeightsTest, AssignsWeightOneToEmptyClass) {
  const std::vector<double> counts{6, 0, 2};
  EXPECT_THAT(balanced_weights(counts), ElementsAre(8.0 / (2 * 6), 1.0, 8.0 / (2 * 2)));
}

TEST(BalancedWeightsTest, AssignsEqualTotalWeightToAllClasses) {
  const std::vector<double> counts{1'000'003.0, 17, 1, 40'000.0};
  const std::vector<double> weights = balanced_weights(counts);
  for (size_t i = 0; i < counts.size(); ++i)
    EXPECT_NEAR(weights[i] * counts[i], 1'040'021 / 4.0, 1e-6) << i;
}

}  // namespace
}  // namespace stoker::data::record
