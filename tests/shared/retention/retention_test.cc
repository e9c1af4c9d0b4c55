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
CheckpointInfos make_checkpoints(uint64_t count) {
  CheckpointInfos checkpoints;
  for (uint64_t step = 1; step <= count; ++step)
    checkpoints.push_back({.step = step, .maybe_created = at(10min * step)});
  return checkpoints;
}

CheckpointInfos make_scored(const std::vector<std::vector<double>>& scores) {
  CheckpointInfos checkpoints = make_checkpoints(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) checkpoints[i].scores = scores[i];
  return checkpoints;
}

CheckpointInfos modify(CheckpointInfos checkpoints, const Steps& steps,
                       const std::function<void(CheckpointInfo&)>& modify_info) {
  for (CheckpointInfo& info : checkpoints)
    if (std::ranges::count(steps, info.step) > 0) modify_info(info);
  return checkpoints;
}
void corrupt(CheckpointInfo& info) { info.is_corrupt = true; }
void incomplete(CheckpointInfo& info) { info.is_complete = false; }
void unevaluated(CheckpointInfo& info) { info.is_unevaluated = true; }
void nonfinite(CheckpointInfo& info) { info.is_finite = false; }
void best(CheckpointInfo& info) { info.is_named_best = true; }

struct RetentionCase {
  std::string name;
  RetentionPolicy policy;
  CheckpointInfos checkpoints;
  Steps retained;
  bool is_disk_full = false;
};

Steps retained_steps(const std::vector<RetentionDecision>& decisions) {
  Steps steps;
  for (const RetentionDecision& decision : decisions)
    if (decision.reason != RetentionReason::kDelete) steps.push_back(decision.step);
  return steps;
}

class RetentionPolicyCaseTest : public ::testing::TestWithParam<RetentionCase> {};

TEST_P(RetentionPolicyCaseTest, RetainsExpectedCheckpoints) {
  const RetentionCase& row = GetParam();
  const auto decisions = apply_retention(row.policy, row.checkpoints,
                                         at(10min * row.checkpoints.size()), row.is_disk_full);
  EXPECT_EQ(retained_steps(decisions), row.retained);
}

INSTANTIATE_TEST_SUITE_P(
    Retention, RetentionPolicyCaseTest,
    ::testing::Values(
        RetentionCase{"KeepLast", {.keep_last = 2}, make_checkpoints(5), {4, 5}},
        RetentionCase{"KeepsAtLeastOne", {.keep_last = -3}, make_checkpoints(5), {5}},
        RetentionCase{"KeepLastAboveCount", {.keep_last = 9}, make_checkpoints(3), {1, 2, 3}},
        RetentionCase{"NoCheckpoints", {}, {}, {}},
        RetentionCase{"KeepEverySteps",
                      {.keep_last = 1, .keep_every_steps = 3},
                      make_checkpoints(8),
                      {3, 6, 8}},
        // Created after 10, 20, … 80 minutes.
        RetentionCase{"KeepEveryHours",
                      {.keep_last = 1, .keep_every = 30min},
                      make_checkpoints(8),
                      {1, 4, 7, 8}},
        RetentionCase{"KeepEveryHoursIgnoresUnknownTime",
                      {.keep_last = 1, .keep_every = 30min},
                      modify(make_checkpoints(8), {1, 2},
                             [](CheckpointInfo& checkpoint) { checkpoint.maybe_created.reset(); }),
                      {3, 6, 8}},
        RetentionCase{"KeepEveryHoursAfterClockMovedBack",
                      {.keep_last = 1, .keep_every = 30min},
                      modify(make_checkpoints(8), {5, 6, 7, 8},
                             [](CheckpointInfo& checkpoint) { *checkpoint.maybe_created -= 24h; }),
                      {1, 4, 5, 8}},
        RetentionCase{"KeepBest",
                      {.keep_last = 1, .keep_best = 2},
                      make_scored({{5}, {3}, {4}, {2}, {6}}),
                      {2, 4, 5}},
        RetentionCase{"KeepBestPrefersEarlierOfEqual",
                      {.keep_last = 1, .keep_best = 1},
                      make_scored({{5}, {3}, {3}, {3}}),
                      {2, 4}},
        RetentionCase{"KeepBestIgnoresUnevaluated",
                      {.keep_last = 1, .keep_best = 3},
                      make_scored({{kNone}, {1}, {kNone}, {kNone}}),
                      {2, 4}},
        RetentionCase{"KeepBestPerMetric",
                      {.keep_last = 1, .keep_best = 1},
                      make_scored({{5, -0.9}, {3, -0.1}, {4, -0.5}, {9, -0.2}}),
                      {1, 2, 4}},
        RetentionCase{"KeepsBestOfEvaluator",
                      {.keep_last = 1, .keep_best = 1},
                      modify(make_scored({{5}, {3}, {4}, {9}}), {3}, best),
                      {2, 3, 4}},
        RetentionCase{
            "KeepBestDisabled", {.keep_last = 1}, modify(make_checkpoints(3), {1}, best), {3}},
        RetentionCase{"KeepsNewestUnevaluated",
                      {.keep_last = 1, .keep_unevaluated = 2},
                      modify(make_checkpoints(6), {1, 2, 3, 6}, unevaluated),
                      {3, 6}},
        RetentionCase{"KeepUnevaluatedDisabled",
                      {.keep_last = 1},
                      modify(make_checkpoints(3), {1, 2}, unevaluated),
                      {3}},
        RetentionCase{"FullDiskIgnoresUnevaluatedAndMinAge",
                      {.keep_last = 1, .keep_unevaluated = 9, .min_age = 1h},
                      modify(make_checkpoints(6), {1, 2, 3}, unevaluated),
                      {6},
                      true},
        RetentionCase{"FullDiskHonorsOtherRules",
                      {.keep_last = 2, .keep_every_steps = 4, .keep_best = 1},
                      modify(make_checkpoints(6), {2}, best),
                      {2, 4, 5, 6},
                      true},
        RetentionCase{"MinAge", {.keep_last = 1, .min_age = 25min}, make_checkpoints(6), {4, 5, 6}},
        RetentionCase{"KeepsLastFinite",
                      {.keep_last = 2},
                      modify(make_checkpoints(6), {4, 5, 6}, nonfinite),
                      {3, 5, 6}},
        RetentionCase{"LastFiniteIsNewest", {.keep_last = 1}, make_checkpoints(3), {3}},
        RetentionCase{"KeepLastSkipsCorrupt",
                      {.keep_last = 2},
                      modify(make_checkpoints(6), {3, 4, 5, 6}, corrupt),
                      {1, 2, 3, 4, 5, 6}},
        RetentionCase{"DeletesCorruptOlderThanKeepLast",
                      {.keep_last = 2},
                      modify(make_checkpoints(6), {2, 5}, corrupt),
                      {4, 5, 6}},
        RetentionCase{"KeepsAllIfAllCorrupt",
                      {.keep_last = 1},
                      modify(make_checkpoints(3), {1, 2, 3}, corrupt),
                      {1, 2, 3}},
        RetentionCase{"KeepsAndDoesNotCountIncomplete",
                      {.keep_last = 2},
                      modify(make_checkpoints(6), {1, 5}, incomplete),
                      {1, 4, 5, 6}},
        RetentionCase{"KeepEveryStepsIgnoresCorrupt",
                      {.keep_last = 1, .keep_every_steps = 2},
                      modify(make_checkpoints(5), {2}, corrupt),
                      {4, 5}}),
    [](const auto& row) { return row.param.name; });

TEST(RetentionPolicyTest, ReportsReasonPerCheckpoint) {
  CheckpointInfos checkpoints =
      make_scored({{kNone}, {1}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}});
  checkpoints[0].is_complete = false;
  checkpoints[2].is_unevaluated = true;
  checkpoints[4].is_corrupt = true;
  const RetentionPolicy policy{
      .keep_last = 2, .keep_every_steps = 4, .keep_best = 1, .keep_unevaluated = 3};
  const std::vector<RetentionDecision> expected{
      {1, RetentionReason::kIncomplete},  {2, RetentionReason::kBest},
      {3, RetentionReason::kUnevaluated}, {4, RetentionReason::kKeepEverySteps},
      {5, RetentionReason::kDelete},      {6, RetentionReason::kDelete},
      {7, RetentionReason::kKeepLast},    {8, RetentionReason::kNewest}};
  EXPECT_EQ(apply_retention(policy, checkpoints, at(0min), false), expected);
  EXPECT_EQ(steps_to_delete(expected), (Steps{5, 6}));
  EXPECT_EQ(to_string(RetentionReason::kUnevaluated), "unevaluated");
  EXPECT_EQ(to_string(RetentionReason::kDelete), "delete");
}

// ---- Invariants for any policy and any run

class RandomInput {
 public:
  explicit RandomInput(uint64_t seed) : random_(seed) {}
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
      CheckpointInfo info{.step = step += 1 + below(4),
                          .is_complete = !one_in(6),
                          .is_corrupt = one_in(5),
                          .is_finite = !one_in(4),
                          .is_unevaluated = one_in(3),
                          .is_named_best = one_in(10)};
      // A clock that is adjusted now and then.
      if (!one_in(8)) info.maybe_created = at(std::chrono::minutes(below(600)));
      for (size_t score = 0; score < scores; ++score)
        info.scores.push_back(one_in(3) ? kNone : static_cast<double>(below(5)));
      checkpoints.push_back(info);
    }
    return checkpoints;
  }

 private:
  std::mt19937_64 random_;
};

bool is_valid(const CheckpointInfo& info) { return info.is_complete && !info.is_corrupt; }

void expect_invariants(const RetentionPolicy& policy, const CheckpointInfos& checkpoints,
                       const std::vector<RetentionDecision>& decisions) {
  ASSERT_EQ(decisions.size(), checkpoints.size());
  const Steps kept_steps = retained_steps(decisions);
  const std::set<uint64_t> retained(kept_steps.begin(), kept_steps.end());
  size_t num_valid = 0;
  bool found_finite = false;
  for (size_t i = checkpoints.size(); i-- > 0;) {
    EXPECT_EQ(decisions[i].step, checkpoints[i].step);
    const bool is_kept = retained.contains(checkpoints[i].step);
    EXPECT_TRUE(is_kept || checkpoints[i].is_complete)
        << "incomplete checkpoints are never deleted";
    if (!is_valid(checkpoints[i])) continue;
    const bool is_last = num_valid++ < static_cast<size_t>(std::max(policy.keep_last, 1));
    const bool is_last_finite = checkpoints[i].is_finite && !found_finite;
    found_finite |= checkpoints[i].is_finite;
    EXPECT_TRUE(is_kept || !(is_last || is_last_finite)) << checkpoints[i].step;
  }
  EXPECT_TRUE(num_valid > 0 || retained.size() == checkpoints.size())
      << "without a valid checkpoint nothing is deleted";
}

TEST(RetentionPolicyTest, NeverDeletesLastValidOrLastFiniteCheckpoint) {
  RandomInput random_input(1);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = random_input.policy();
    const CheckpointInfos checkpoints = random_input.checkpoints();
    for (const bool is_disk_full : {false, true})
      expect_invariants(policy, checkpoints,
                        apply_retention(policy, checkpoints, at(300min), is_disk_full));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(RetentionPolicyTest, RetainsSameCheckpointsOnSecondApplication) {
  RandomInput random_input(2);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = random_input.policy();
    const CheckpointInfos checkpoints = random_input.checkpoints();
    for (const bool is_disk_full : {false, true}) {
      const Steps retained =
          retained_steps(apply_retention(policy, checkpoints, at(300min), is_disk_full));
      CheckpointInfos remaining;
      for (const CheckpointInfo& info : checkpoints)
        if (std::ranges::count(retained, info.step) > 0) remaining.push_back(info);
      ASSERT_EQ(retained_steps(apply_retention(policy, remaining, at(300min), is_disk_full)),
                retained)
          << "round " << round;
    }
  }
}

TEST(RetentionPolicyTest, NeverRetainsMoreOnFullDisk) {
  RandomInput random_input(3);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = random_input.policy();
    const CheckpointInfos checkpoints = random_input.checkpoints();
    const Steps retained = retained_steps(apply_retention(policy, checkpoints, at(300min), false));
    for (const uint64_t step :
         retained_steps(apply_retention(policy, checkpoints, at(300min), true)))
      ASSERT_GT(std::ranges::count(retained, step), 0) << "round " << round;
  }
}

// A higher limit only adds to the kept checkpoints.
TEST(RetentionPolicyTest, NeverDeletesMoreWithLargerLimits) {
  RandomInput random_input(4);
  for (int round = 0; round < 20000; ++round) {
    const RetentionPolicy policy = random_input.policy();
    RetentionPolicy more = policy;
    switch (random_input.below(4)) {
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
    const CheckpointInfos checkpoints = random_input.checkpoints();
    const Steps retained = retained_steps(apply_retention(more, checkpoints, at(300min), false));
    for (const uint64_t step :
         retained_steps(apply_retention(policy, checkpoints, at(300min), false)))
      ASSERT_GT(std::ranges::count(retained, step), 0) << "round " << round;
  }
}

}  // namespace
}  // namespace stoker::retention
