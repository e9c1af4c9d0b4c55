// Distances of label sequences, and what decoded paths stand for.
#include "shared/eval_metrics/label_error_rate.h"

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::eval_metrics {
namespace {

using Labels = std::vector<int64_t>;

uint64_t distance(const Labels& one, const Labels& other) { return edit_distance(one, other); }

// By the definition: the fewest of what one of the three edits at the end leads to.
uint64_t slow_distance(std::span<const int64_t> one, std::span<const int64_t> other) {
  if (one.empty() || other.empty()) return one.size() + other.size();
  const auto less_one = one.first(one.size() - 1), less_other = other.first(other.size() - 1);
  const uint64_t replaced =
      slow_distance(less_one, less_other) + (one.back() == other.back() ? 0 : 1);
  return std::min(
      {replaced, slow_distance(less_one, other) + 1, slow_distance(one, less_other) + 1});
}

TEST(EditDistanceTest, CountsMinimumInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(distance({}, {}), 0u);
  EXPECT_EQ(distance({1, 2, 3}, {}), 3u);
  EXPECT_EQ(distance({}, {4}), 1u);
  EXPECT_EQ(distance({1, 2, 3}, {1, 2, 3}), 0u);
  EXPECT_EQ(distance({1, 2, 3}, {1, 3}), 1u);
  EXPECT_EQ(distance({1, 3}, {1, 2, 3}), 1u);
  EXPECT_EQ(distance({1, 9, 3}, {1, 2, 3}), 1u);
  EXPECT_EQ(distance({2, 1, 3}, {1, 2, 3}), 2u);
}

TEST(EditDistanceTest, MatchesReferenceOnRandomSequences) {
  std::mt19937 random(3);
  const auto any = [&random] {
    Labels labels(random() % 7);
    for (int64_t& label : labels) label = static_cast<int64_t>(random() % 3);
    return labels;
  };
  for (int i = 0; i < 300; ++i) {
    const Labels one = any(), other = any();
    ASSERT_EQ(distance(one, other), slow_distance(one, other));
    ASSERT_EQ(distance(one, other), distance(other, one));
  }
}

TEST(CollapseTest, MergesRepeatsThenDropsBlanks) {
  const auto collapsed = [](Labels path) {
    const auto labels = collapse(path, 0);
    return Labels(labels.begin(), labels.end());
  };
  EXPECT_EQ(collapsed({0, 1, 1, 0, 1, 2, 2, 0}), (Labels{1, 1, 2}));
  EXPECT_EQ(collapsed({3, 3, 3}), (Labels{3}));
  EXPECT_EQ(collapsed({0, 0}), Labels{});
  EXPECT_EQ(collapsed({}), Labels{});
}

TEST(LabelErrorRateTest, DividesErrorsByTotalLabelsOfAllSamples) {
  LabelErrorRate score;
  score.add(2, Labels{1, 2}, Labels{1, 2});
  score.add(4, Labels{5}, Labels{1, 2, 3, 4});
  score.add(0, Labels{}, Labels{});
  const auto metrics = score.report().metrics;
  EXPECT_EQ(metrics[0], (std::pair<std::string, double>("loss", 2)));
  EXPECT_EQ(metrics[1], (std::pair<std::string, double>("label_error_rate", 4.0 / 6)));
  EXPECT_EQ(metrics[2], (std::pair<std::string, double>("exact_match", 2.0 / 3)));
}

TEST(LabelErrorRateTest, ReturnsNanWithoutSamples) {
  for (const auto& [name, value] : LabelErrorRate().report().metrics)
    EXPECT_TRUE(std::isnan(value)) << name;
}

}  // namespace
}  // namespace stoker::eval_metrics
