#include "shared/eval_metrics/entity_metrics.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::eval_metrics {
namespace {

const std::vector<std::string> kTags{"O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER"};

struct Sequence {
  std::vector<int64_t> labels, predictions;
  double precision = 0, recall = 0, f1 = 0;  // of seqeval 1.2.2
};

// precision_score, recall_score and f1_score of seqeval (tests/parity/make_recipe_numbers.py).
const std::vector<Sequence> kSequences{
    {{0, 1, 2, 0, 3, 4}, {0, 1, 2, 0, 3, 0}, 0.5, 0.5, 0.5},
    {{2, 2, 1, 0, 6, 5, 5}, {2, 2, 2, 0, 6, 4, 5}, 0.333333333, 0.2, 0.25},
    {{3, 5, 4, 2, 0}, {3, 5, 4, 2, 2}, 0.666666667, 0.666666667, 0.666666667},
    {{4, 6, 6, 1, 4}, {0, 6, 1, 1, 4}, 1, 0.8, 0.888888889},
    {{0, 0}, {0, 5}, 0, 0, 0}};

void expect_metrics(const EntityMetrics& metrics, double precision, double recall, double f1) {
  const MetricValues values = metrics.metrics();
  ASSERT_EQ(values.size(), 3u);
  const std::vector<std::pair<std::string, double>> expected{
      {"entity_precision", precision}, {"entity_recall", recall}, {"entity_f1", f1}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(values[i].first, expected[i].first);
    EXPECT_NEAR(values[i].second, expected[i].second, 1e-9) << values[i].first;
  }
}

TEST(EntityMetricsTest, CountEntitiesOfSequenceAsSeqeval) {
  for (const Sequence& row : kSequences) {
    EntityMetrics metrics(kTags);
    metrics.add(row.labels, row.predictions);
    expect_metrics(metrics, row.precision, row.recall, row.f1);
  }
}

TEST(EntityMetricsTest, CountEntitiesOfAllSequencesAsSeqeval) {
  EntityMetrics metrics(kTags);
  for (const Sequence& row : kSequences) metrics.add(row.labels, row.predictions);
  expect_metrics(metrics, 0.615384615, 0.533333333, 0.571428571);
}

TEST(EntityMetricsTest, CountsPredictionWithoutTagAsOutside) {
  EntityMetrics metrics(kTags);
  metrics.add(std::vector<int64_t>{1, 2, 0}, std::vector<int64_t>{1, 2, 7});
  expect_metrics(metrics, 1, 1, 1);
}

TEST(EntityMetricsTest, AreZeroWithoutEntities) { expect_metrics(EntityMetrics(kTags), 0, 0, 0); }

TEST(EntityTagTest, IsOutsideOrKindWithType) {
  for (const char* const tag : {"O", "B-PER", "I-X", "E-a-b", "S-1"})
    EXPECT_TRUE(is_entity_tag(tag)) << tag;
  for (const char* const tag : {"", "o", "B", "B-", "PER", "X-PER", "b-PER", "O-PER", "I_PER"})
    EXPECT_FALSE(is_entity_tag(tag)) << tag;
}

}  // namespace
}  // namespace stoker::eval_metrics
