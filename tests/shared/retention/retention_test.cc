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
using AllFacts = std::vector<CheckpointFacts>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

WallTime at(std::chrono::minutes minutes) { return WallTime(24h * 365 * 50 + minutes); }

// Steps 1 to `count`, ten minutes apart, all sound.
AllFacts run_of(uint64_t count) {
  AllFacts facts;
  for (uint64_t step = 1; step <= count; ++step)
    facts.push_back({.step = step, .maybe_created = at(10min * step)});
  return facts;
}

AllFacts scored(const std::vector<std::vector<double>>& scores) {
  AllFacts facts = run_of(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) facts[i].scores = scores[i];
  return facts;
}

AllFacts with(AllFacts facts, const Steps& steps,
              const std::function<void(CheckpointFacts&)>& set) {
  for (CheckpointFacts& each : facts)
    if (std::ranges::count(steps, each.step) > 0) set(each);
  return facts;
}
void corrupt(CheckpointFacts& each) { each.is_corrupt = true; }
void not_whole(CheckpointFacts& each) { each.is_whole = false; }
void pending(CheckpointFacts& each) { each.is_pending = true; }
void not_finite(CheckpointFacts& each) { each.is_finite = false; }
void best(CheckpointFacts& each) { each.is_named_best = true; }

struct Case {
  std::string name;
  RetentionRule rule;
  AllFacts facts;
  Steps kept;
  bool is_short = false;
};

Steps kept_of(const std::vector<Decision>& decisions) {
  Steps steps;
  for (const Decision& decision : decisions)
    if (decision.verdict != Verdict::kRetire) steps.push_back(decision.step);
  return steps;
}

class Table : public ::testing::TestWithParam<Case> {};

TEST_P(Table, Keeps) {
  const Case& row = GetParam();
  const auto decisions = decide(row.rule, row.facts, at(10min * row.facts.size()), row.is_short);
  EXPECT_EQ(kept_of(decisions), row.kept);
}

INSTANTIATE_TEST_SUITE_P(
    Retention, Table,
    ::testing::Values(
        Case{"TheLastOnes", {.keep_last = 2}, run_of(5), {4, 5}},
        Case{"OneWhateverStandsThere", {.keep_last = -3}, run_of(5), {5}},
        Case{"AllOfThemWhereThereAreFewer", {.keep_last = 9}, run_of(3), {1, 2, 3}},
        Case{"NothingOfNothing", {}, {}, {}},
        Case{"Milestones", {.keep_last = 1, .keep_every_steps = 3}, run_of(8), {3, 6, 8}},
        // Created after 10, 20, … 80 minutes.
        Case{"OneInEachPeriod", {.keep_last = 1, .keep_every = 30min}, run_of(8), {1, 4, 7, 8}},
        Case{"NoPeriodOfWhatDoesNotTellItsTime",
             {.keep_last = 1, .keep_every = 30min},
             with(run_of(8), {1, 2}, [](CheckpointFacts& each) { each.maybe_created.reset(); }),
             {3, 6, 8}},
        Case{"APeriodWhenTheClockWasSetBackADay",
             {.keep_last = 1, .keep_every = 30min},
             with(run_of(8), {5, 6, 7, 8},
                  [](CheckpointFacts& each) { *each.maybe_created -= 24h; }),
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
        Case{"NoBestWhereNoneIsAskedFor", {.keep_last = 1}, with(run_of(3), {1}, best), {3}},
        Case{"WhatWaitsForItsEvaluationTheNewestOfIt",
             {.keep_last = 1, .keep_pending = 2},
             with(run_of(6), {1, 2, 3, 6}, pending),
             {3, 6}},
        Case{"NothingThatWaitsWhereItIsNotProtected",
             {.keep_last = 1},
             with(run_of(3), {1, 2}, pending),
             {3}},
        Case{"NothingThatWaitsWhereTheDiskIsShort",
             {.keep_last = 1, .keep_pending = 9, .grace = 1h},
             with(run_of(6), {1, 2, 3}, pending),
             {6},
             true},
        Case{"WhatWasAskedForAlsoWhereTheDiskIsShort",
             {.keep_last = 2, .keep_every_steps = 4, .keep_best = 1},
             with(run_of(6), {2}, best),
             {2, 4, 5, 6},
             true},
        Case{"TheYoung", {.keep_last = 1, .grace = 25min}, run_of(6), {4, 5, 6}},
        Case{"TheLastFiniteOne",
             {.keep_last = 2},
             with(run_of(6), {4, 5, 6}, not_finite),
             {3, 5, 6}},
        Case{"TheLastFiniteOneAlsoWhereItIsTheNewest", {.keep_last = 1}, run_of(3), {3}},
        Case{"TheLastValidOneHoweverManyAfterItAreDamaged",
             {.keep_last = 2},
             with(run_of(6), {3, 4, 5, 6}, corrupt),
             {1, 2, 3, 4, 5, 6}},
        Case{"DamagedOnesOnlyAsLongAsTheyAreNewerThanALastOne",
             {.keep_last = 2},
             with(run_of(6), {2, 5}, corrupt),
             {4, 5, 6}},
        Case{"AllWhereAllAreDamaged",
             {.keep_last = 1},
             with(run_of(3), {1, 2, 3}, corrupt),
             {1, 2, 3}},
        Case{"WhatIsNotWholeCountsForNothingAndStays",
             {.keep_last = 2},
             with(run_of(6), {1, 5}, not_whole),
             {1, 4, 5, 6}},
        Case{"NoMilestoneThatIsDamaged",
             {.keep_last = 1, .keep_every_steps = 2},
             with(run_of(5), {2}, corrupt),
             {4, 5}}),
    [](const auto& row) { return row.param.name; });

TEST(Retention, SaysWhyEachIsKept) {
  AllFacts facts = scored({{kNone}, {1}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}, {kNone}});
  facts[0].is_whole = false;
  facts[2].is_pending = true;
  facts[4].is_corrupt = true;
  const RetentionRule rule{
      .keep_last = 2, .keep_every_steps = 4, .keep_best = 1, .keep_pending = 3};
  const std::vector<Decision> due{{1, Verdict::kNotWhole}, {2, Verdict::kBest},
                                  {3, Verdict::kPending},  {4, Verdict::kMilestone},
                                  {5, Verdict::kRetire},   {6, Verdict::kRetire},
                                  {7, Verdict::kLast},     {8, Verdict::kNewest}};
  EXPECT_EQ(decide(rule, facts, at(0min), false), due);
  EXPECT_EQ(retired_of(due), (Steps{5, 6}));
  EXPECT_EQ(verdict_name(Verdict::kPending), "unevaluated");
  EXPECT_EQ(verdict_name(Verdict::kRetire), "delete");
}

// ---- What holds for any rule and any run

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t end) { return random_() % end; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  RetentionRule rule() {
    return {.keep_last = static_cast<int>(below(5)),
            .keep_every_steps = one_in(2) ? below(6) : 0,
            .keep_every = one_in(2) ? std::chrono::minutes(below(90)) : 0min,
            .keep_best = static_cast<int>(below(4)),
            .keep_pending = one_in(2) ? below(4) : 0,
            .grace = one_in(3) ? std::chrono::minutes(below(60)) : 0min};
  }
  AllFacts facts() {
    AllFacts facts;
    const uint64_t count = below(13);
    const size_t scores = below(3);
    uint64_t step = 0;
    for (uint64_t i = 0; i < count; ++i) {
      CheckpointFacts each{.step = step += 1 + below(4),
                           .is_whole = !one_in(6),
                           .is_corrupt = one_in(5),
                           .is_finite = !one_in(4),
                           .is_pending = one_in(3),
                           .is_named_best = one_in(10)};
      // A clock that is set now and then.
      if (!one_in(8)) each.maybe_created = at(std::chrono::minutes(below(600)));
      for (size_t score = 0; score < scores; ++score)
        each.scores.push_back(one_in(3) ? kNone : static_cast<double>(below(5)));
      facts.push_back(each);
    }
    return facts;
  }

 private:
  std::mt19937_64 random_;
};

bool is_sound(const CheckpointFacts& each) { return each.is_whole && !each.is_corrupt; }

void expect_invariants(const RetentionRule& rule, const AllFacts& facts,
                       const std::vector<Decision>& decisions) {
  ASSERT_EQ(decisions.size(), facts.size());
  const Steps kept_steps = kept_of(decisions);
  const std::set<uint64_t> kept(kept_steps.begin(), kept_steps.end());
  size_t sound = 0;
  bool finite_seen = false;
  for (size_t i = facts.size(); i-- > 0;) {
    EXPECT_EQ(decisions[i].step, facts[i].step);
    const bool is_kept = kept.contains(facts[i].step);
    EXPECT_TRUE(is_kept || facts[i].is_whole) << "not ours to judge";
    if (!is_sound(facts[i])) continue;
    const bool is_last = sound++ < static_cast<size_t>(std::max(rule.keep_last, 1));
    const bool is_last_finite = facts[i].is_finite && !finite_seen;
    finite_seen |= facts[i].is_finite;
    EXPECT_TRUE(is_kept || !(is_last || is_last_finite)) << facts[i].step;
  }
  EXPECT_TRUE(sound > 0 || kept.size() == facts.size()) << "there is no valid one to go on from";
}

TEST(Retention, NeverTakesTheLastValidNorTheLastFiniteOne) {
  Dice dice(1);
  for (int round = 0; round < 20000; ++round) {
    const RetentionRule rule = dice.rule();
    const AllFacts facts = dice.facts();
    for (const bool is_short : {false, true})
      expect_invariants(rule, facts, decide(rule, facts, at(300min), is_short));
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(Retention, DecidingAgainAboutWhatWasKeptKeepsTheSame) {
  Dice dice(2);
  for (int round = 0; round < 20000; ++round) {
    const RetentionRule rule = dice.rule();
    const AllFacts facts = dice.facts();
    for (const bool is_short : {false, true}) {
      const Steps kept = kept_of(decide(rule, facts, at(300min), is_short));
      AllFacts left;
      for (const CheckpointFacts& each : facts)
        if (std::ranges::count(kept, each.step) > 0) left.push_back(each);
      ASSERT_EQ(kept_of(decide(rule, left, at(300min), is_short)), kept) << "round " << round;
    }
  }
}

TEST(Retention, AFullDiskNeverKeepsMore) {
  Dice dice(3);
  for (int round = 0; round < 20000; ++round) {
    const RetentionRule rule = dice.rule();
    const AllFacts facts = dice.facts();
    const Steps kept = kept_of(decide(rule, facts, at(300min), false));
    for (const uint64_t step : kept_of(decide(rule, facts, at(300min), true)))
      ASSERT_GT(std::ranges::count(kept, step), 0) << "round " << round;
  }
}

// What a rule adds it only ever adds.
TEST(Retention, AskingForMoreNeverRemovesMore) {
  Dice dice(4);
  for (int round = 0; round < 20000; ++round) {
    const RetentionRule rule = dice.rule();
    RetentionRule more = rule;
    switch (dice.below(4)) {
      case 0:
        ++more.keep_last;
        break;
      case 1:
        ++more.keep_best;
        break;
      case 2:
        ++more.keep_pending;
        break;
      default:
        more.grace += 10min;
    }
    const AllFacts facts = dice.facts();
    const Steps kept = kept_of(decide(more, facts, at(300min), false));
    for (const uint64_t step : kept_of(decide(rule, facts, at(300min), false)))
      ASSERT_GT(std::ranges::count(kept, step), 0) << "round " << round;
  }
}

}  // namespace
}  // namespace stoker::retention
