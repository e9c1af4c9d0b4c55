#include "shared/retention/retention.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::retention {
namespace {

using namespace std::chrono_literals;
using Steps = std::vector<uint64_t>;
using CheckpointInfos = std::vector<CheckpointInfo>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

WallTime at(std::chrono::minutes minutes) { return WallTime(24h * 365 * 50 + minutes); }

// Steps 1 to `count`, ten minutes apart, all complete and not corrupt.
CheckpointInfos steps_of_run(uint64_t count) {
  CheckpointInfos checkpoints;
  for (uint64_t step = 1; step <= count; ++step)
    checkpoints.push_back({.step = step, .maybe_created = at(10min * step)});
  return checkpoints;
}

CheckpointInfos scored(const std::vector<std::vector<double>>& scores) {
  CheckpointInfos checkpoints = steps_of_run(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) checkpoints[i].scores = scores[i];
  return checkpoints;
}

CheckpointInfos with(CheckpointInfos checkpoints, const Steps& steps,
                     const std::function<void(CheckpointInfo&)>& dataset) {
  for (CheckpointInfo& each : checkpoints)
    if (std::ranges::count(steps, each.step) > 0) dataset(each);
  return checkpoints;
}
void corrupt(CheckpointInfo& each) { each.is_corrupt = true; }
void not_whole(CheckpointInfo& each) { each.is_complete = false; }
void pending(CheckpointInfo& each) { each.is_unevaluated = true; }
void not_finite(CheckpointInfo& each) { each.is_finite = false; }
void best(CheckpointInfo& each) { each.is_named_best = true; }

struct Case {
  std::string name;
  RetentionPolicy policy;
  CheckpointInfos checkpoints;
  Steps num_kept;
  bool is_disk_full = false;
};

Steps stored_values(const std::vector<RetentionDecision>& decisions) {
  Steps steps;
  for (const RetentionDecision& decision : decisions)
    if (decision.reason != RetentionReason::kDelete) steps.push_back(decision.step);
  return steps;
}

class RetentionPolicyCaseTest : public ::testing::TestWithParam<Case> {};

TEST_P(RetentionPolicyCaseTest, RetainsExpectedCheckpoints) {
  const Case& row = GetParam();
  const auto decisions = apply_retention(row.policy, row.checkpoints,
                                         at(10min * row.checkpoints.size()), row.is_disk_full);
  EXPECT_EQ(stored_values(decisions), row.num_kept);
}

INSTANTIATE_TEST_SUITE_P(
    Retention, RetentionPolicyCaseTest,
    ::testing::Values(
        Case{"TheLastOnes", {.keep_last = 2}, steps_of_run(5), {4, 5}},
        Case{"OneWhateverStandsThere", {.keep_last = -3}, steps_of_run(5), {5}},
        Case{"AllOfThemWhereThereAreFewer", {.keep_last = 9}, steps_of_run(3), {1, 2, 3}},
        Case{"NothingOfNothing", {}, {}, {}},
        Case{"Milestones", {.keep_last = 1, .keep_every_steps = 3}, steps_of_run(8), {3, 6, 8}},
        // Created after 10, 20, … 80 minutes.
        Case{"OneInEachPeriod",
             {.keep_last = 1, .keep_every = 30min},
             steps_of_run(8),
             {1, 4, 7, 8}},
        Case{
            "NoPeriodOfWhatDoesNotTellItsTime",
            {.keep_last = 1, .keep_every = 30min},
            with(steps_of_run(8), {1, 2}, [](CheckpointInfo& each) { each.maybe_created.reset(); }),
            {3, 6, 8}},
        Case{"APeriodWhenTheClockWasSetBackADay",
             {.keep_last = 1, .keep_every = 30min},
             with(steps_of_run(8), {5, 6, 7, 8},
                  [](CheckpointInfo& each) { *each.maybe_created -= 24h; }),
             {1, 4, 5, 8}},
        Case{"TheBest",
             {.keep_last = 1, .keep_best = 2},
             scored({{5}, {3}, {4}, {2}, {6}}),
             {2, 4, 5}},
        Case{"TheEarlierOfEqualBest",
             {.keep_last = 1, .keep_best = 1},
             scored({{5}, {3}, {3}, {3}}),
             {2, 4}},
        Case{"NoBestOfWhatWasNotEvaluated",
             {.keep_last = 1, .keep_best = 3},
             scored({{kNone}, {1}, {kNone}, {kNone}}),
             {2, 4}},
        Case{"TheBestByEachMetric",
             {.keep_last = 1, .keep_best = 1},
             scored({{5, -0.9}, {3, -0.1}, {4, -0.5}, {9, -0.2}}),
             {1, 2, 4}},
        Case{"WhatTheEvaluatorCallsBest",
             {.keep_last = 1, .keep_best = 1},
             with(scored({{5}, {3}, {4}, {9}}), {3}, best),
             {2, 3, 4}},
        Case{"NoBestWhereNoneIsAskedFor", {.keep_last = 1}, with(steps_of_run(3), {1}, best), {3}},
        Case{"WhatWaitsForItsEvaluationTheNewestOfIt",
             {.keep_last = 1, .keep_unevaluated = 2},
             with(steps_of_run(6), {1, 2, 3, 6}, pending),
             {3, 6}},
        Case{"NothingThatWaitsWhereItIsNotProtected",
             {.keep_last = 1},
             with(steps_of_run(3), {1, 2}, pending),
             {3}},
        Case{"NothingThatWaitsWhereTheDiskIsShort",
             {.keep_last = 1, .keep_unevaluated = 9, .min_age = 1h},
             with(steps_of_run(6), {1, 2, 3}, pending),
             {6},
             true},
        Case{"WhatWasAskedForAlsoWhereTheDiskIsShort",
             {.keep_last = 2, .keep_every_steps = 4, .keep_best = 1},
             with(steps_of_run(6), {2}, best),
             {2, 4, 5, 6},
             true},
        Case{"TheYoung", {.keep_last = 1, .min_age = 25min}, steps_of_run(6), {4, 5, 6}},
        Case{"TheLastFiniteOne",
             {.keep_last = 2},
             with(steps_of_run(6), {4, 5, 6}, not_finite),
             {3, 5, 6}},
        Case{"TheLastFiniteOneAlsoWhereItIsTheNewest", {.keep_last = 1}, steps_of_run(3), {3}},
        Case{"TheLastValidOneHoweverManyAfterItAreDamaged",
             {.keep_last = 2},
             with(steps_of_run(6), {3, 4, 5, 6}, corrupt),
             {1, 2, 3, 4, 5, 6}},
        Case{"DamagedOnesOnlyAsLongAsTheyAreNewerThanALastOne",
             {.keep_last = 2},
             with(steps_of_run(6), {2, 5}, corrupt),
             {4, 5, 6}},
        Case{"AllWhereAllAreDamaged",
             {.keep_last = 1},
             with(steps_of_run(3), {1, 2, 3}, corrupt),
             {1, 2, 3}},
        Case{"WhatIsNotWholeCountsForNothingAndStays",
             {.keep_last = 2},
             with(steps_of_run(6), {1, 5}, not_whole),
             {1, 4, 5, 6}},
        Case{"NoMilestoneThatIsDamaged",
             {.keep_last = 1, .keep_every_steps = 2},
             with(steps_of_run(5), {2}, corrupt),
             {4, 5}}),
    [](const auto& row) { return row.param.name; });

TEST(RetentionPolicyTest, ReportsReasonPerCheckpoint) {
  CheckpointInfos checkpoints =
      scored({{kNone}, {1}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}});
  checkpoints[0].is_complete = false;
  checkpoints[2].is_unevaluated = true;
  checkpoints[4].is_corrupt = true;
  const RetentionPolicy policy{
      .keep_last = 2, .keep_every_steps = 4, .keep_best = 1, .keep_unevaluated = 3};
  const std::vector<RetentionDecision> due{
      {1, RetentionReason::kIncomplete},  {2, RetentionReason::kBest},
      {3, RetentionReason::kUnevaluated}, {4, RetentionReason::kKeepEverySteps},
      {5, RetentionReason::kDelete},      {6, RetentionReason::kDelete},
      {7, RetentionReason::kKeepLast},    {8, RetentionReason::kNewest}};
  EXPECT_EQ(apply_retention(policy, checkpoints, at(0min), false), due);
  EXPECT_EQ(steps_to_delete(due), (Steps{5, 6}));
  EXPECT_EQ(to_string(RetentionReason::kUnevaluated), "unevaluated");
  EXPECT_EQ(to_string(RetentionReason::kDelete), "delete");
}

// ---- Invariants for any policy and any run

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t end) { return random_() % end; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  RetentionPolicy policy() {
    return {.keep_last = static_cast<int>(below(5)),
            .keep_every_steps = one_in(2) ? below(6) : 0,
            .keep_every = one_in(2) ? std::chrono::minutes(below(90)) : 0min,
            .keep_best = static_cast<int>(below(4)),
            .keep_unevaluated = one_in(2) ? below(4) : 0,
            .min_age = one_in(3) ? std::chrono::minutes(below(60)) : 0min};
  }
  CheckpointInfos checkpoints() {
    CheckpointInfos checkpoints;
    const uint64_t count = below(13);
    const size_t scores = below(3);
    uint64_t step = 0;
    for (uint64_t i = 0; i < count; ++i) {
      CheckpointInfo each{.step = step += 1 + below(4),
                          .is_complete = !one_in(6),
                          .is_corrupt = one_in(5),
                          .is_finite = !one_in(4),
                          .is_unevaluated = one_in(3),
                          .is_named_best = one_in(10)};
      // A clock that is adjusted now and then.
      if (!one_in(8)) each.maybe_created = at(std::chrono::minutes(below(600)));
      for (size_t score = 0; score < scores; ++score)
        each.scores.push_back(one_in(3) ? kNone : static_cast<double>(below(5)));
      checkpoints.push_back(each);
    }
    return checkpoints;
  }

 private:
  std::mt19937_64 random_;
};

bool is_sound(const CheckpointInfo& each) { return each.is_complete && !each.is_corrupt; }

void expect_invariants(const RetentionPolicy& policy, const CheckpointInfos& checkpoints,
                       const std::vector<RetentionDecision>& decisions) {
  ASSERT_EQ(decisions.size(), checkpoints.size());
  const Steps kept_steps = stored_values(decisions);
  const std::set<uint64_t> num_kept(kept_steps.begin(), kept_steps.end());
  size_t sound = 0;
  bool finite_seen = false;
  for (size_t i = checkpoints.size(); i-- > 0;) {
    EXPECT_EQ(decisions[i].step, checkpoints[i].step);
    const bool is_kept = num_kept.contains(checkpoints[i].step);
    EXPECT_TRUE(is_kept || checkpoints[i].is_complete) << "not ours to judge";
    if (!is_sound(checkpoints[i])) continue;
    const bool is_last = sound++ < static_cast<size_t>(std::max(policy.keep_last, 1));
    const bool is_last_finite = checkpoints[i].is_finite && !finite_seen;
    finite_seen |= checkpoints[i].is_finite;
    EXPECT_TRUE(is_kept || !(is_last || is_last_finite)) << checkpoints[i].step;
  }
  EXPECT_TRUE(sound > 0 || num_kept.size() == checkpoints.size())
      << "there is no valid one to go on from";
}

TEST(RetentionPolicyTest, NeverDeletesLastValidOrLastFiniteCheckpoint) {
  Dice dice(1);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = dice.policy();
    const CheckpointInfos checkpoints = dice.checkpoints();
    for (const bool is_disk_full : {false, true})
      expect_invariants(policy, checkpoints,
                        apply_retention(policy, checkpoints, at(300min), is_disk_full));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(RetentionPolicyTest, RetainsSameCheckpointsOnSecondApplication) {
  Dice dice(2);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = dice.policy();
    const CheckpointInfos checkpoints = dice.checkpoints();
    for (const bool is_disk_full : {false, true}) {
      const Steps num_kept =
          stored_values(apply_retention(policy, checkpoints, at(300min), is_disk_full));
      CheckpointInfos left;
      for (const CheckpointInfo& each : checkpoints)
        if (std::ranges::count(num_kept, each.step) > 0) left.push_back(each);
      ASSERT_EQ(stored_values(apply_retention(policy, left, at(300min), is_disk_full)), num_kept)
          << "round " << round;
    }
  }
}

TEST(RetentionPolicyTest, NeverRetainsMoreOnFullDisk) {
  Dice dice(3);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = dice.policy();
    const CheckpointInfos checkpoints = dice.checkpoints();
    const Steps num_kept = stored_values(apply_retention(policy, checkpoints, at(300min), false));
    for (const uint64_t step :
         stored_values(apply_retention(policy, checkpoints, at(300min), true)))
      ASSERT_GT(std::ranges::count(num_kept, step), 0) << "round " << round;
  }
}

// A higher limit only adds to the kept checkpoints.
TEST(RetentionPolicyTest, NeverDeletesMoreWithLargerLimits) {
  Dice dice(4);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = dice.policy();
    RetentionPolicy more = policy;
    switch (dice.below(4)) {
      case 0:
        ++more.keep_last;
        break;
      case 1:
        ++more.keep_best;
        break;
      case 2:
        ++more.keep_unevaluated;
        break;
      default:
        more.min_age += 10min;
    }
    const CheckpointInfos checkpoints = dice.checkpoints();
    const Steps num_kept = stored_values(apply_retention(more, checkpoints, at(300min), false));
    for (const uint64_t step :
         stored_values(apply_retention(policy, checkpoints, at(300min), false)))
      ASSERT_GT(std::ranges::count(num_kept, step), 0) << "round " << round;
  }
}

}  // namespace
}  // namespace stoker::retention
