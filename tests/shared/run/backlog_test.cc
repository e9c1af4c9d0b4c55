#include "shared/run/backlog.h"

#include <gtest/gtest.h>

namespace stoker::run {
namespace {

using Policy = config::CheckpointSelection;
using Order = config::EvaluationOrder;
using Steps = std::vector<uint64_t>;

struct Scene {
  Steps there;
  std::set<uint64_t> evaluated = {};
  std::set<uint64_t> given_up = {};
  std::set<uint64_t> evaluated_and_gone = {};
  bool run_ended = false;
};

Steps due(const Scene& scene, const BacklogRule& rule) {
  Backlog backlog;
  backlog.steps = scene.there;
  backlog.fate = [&](uint64_t step) {
    if (scene.evaluated.contains(step)) return Fate::kEvaluated;
    return scene.given_up.contains(step) ? Fate::kGivenUp : Fate::kOpen;
  };
  backlog.evaluated_steps = scene.evaluated;
  backlog.evaluated_steps.insert(scene.evaluated_and_gone.begin(), scene.evaluated_and_gone.end());
  backlog.run_ended = scene.run_ended;
  return due_steps(backlog, rule);
}

constexpr BacklogRule kLatest{.policy = Policy::kLatest};
constexpr BacklogRule kAll{.policy = Policy::kAll};
constexpr BacklogRule kEvery{.policy = Policy::kInterval, .every_steps = 100};

TEST(Backlog, AllTakesEverythingThatIsNotSettledOldestFirst) {
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}}, kAll), (Steps{10, 30}));
  EXPECT_EQ(due({.there = {10, 20}, .evaluated = {10}, .given_up = {20}}, kAll), Steps{});
}

TEST(Backlog, TheNewestGoesFirstWhereThatIsWanted) {
  BacklogRule newest = kAll;
  newest.order = Order::kNewestFirst;
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}}, newest), (Steps{30, 10}));
}

TEST(Backlog, LatestTakesTheNewestAndNeverGoesBack) {
  EXPECT_EQ(due({.there = {10, 20, 30}}, kLatest), Steps{30});
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {30}}, kLatest), Steps{})
      << "10 and 20 were skipped for good";
}

TEST(Backlog, LatestTakesTheOneBeforeADamagedOne) {
  EXPECT_EQ(due({.there = {10, 20, 30}, .given_up = {30}}, kLatest), Steps{20});
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}, .given_up = {30}}, kLatest), Steps{});
}

TEST(Backlog, EveryTakesTheFirstOfEachSpanThatBeginsAtAMultiple) {
  EXPECT_EQ(due({.there = {40, 80, 120, 160, 200, 240, 410}}, kEvery), (Steps{120, 200, 410}));
  EXPECT_EQ(due({.there = {40, 80}}, kEvery), Steps{});
}

TEST(Backlog, EveryCountsASpanAsDoneAlsoWhenItsCheckpointIsGone) {
  EXPECT_EQ(due({.there = {160, 210}, .evaluated_and_gone = {120}}, kEvery), Steps{210});
}

TEST(Backlog, EveryTakesTheNextOfASpanWhoseFirstIsDamaged) {
  EXPECT_EQ(due({.there = {120, 160, 180}, .given_up = {120}}, kEvery), Steps{160});
}

TEST(Backlog, EveryEvaluatesAnewWhatTheRunDidAnew) {
  Scene scene{.there = {120, 160}};
  scene.evaluated_and_gone = {120};  // its line is of the checkpoint that was there before
  EXPECT_EQ(due(scene, kEvery), Steps{120});
}

TEST(Backlog, EveryTakesTheLastOfARunThatHasEnded) {
  Scene scene{.there = {120, 160, 180}, .evaluated = {120}, .run_ended = true};
  EXPECT_EQ(due(scene, kEvery), Steps{180});
  scene.evaluated.insert(180);
  EXPECT_EQ(due(scene, kEvery), Steps{});
  EXPECT_EQ(due({.there = {120}, .run_ended = true}, kEvery), Steps{120}) << "once";
  EXPECT_EQ(due({.there = {40}, .run_ended = true}, kEvery), Steps{40}) << "also of a short run";
}

TEST(Backlog, NothingThereMeansNothingDue) {
  for (const BacklogRule& rule : {kLatest, kAll, kEvery})
    EXPECT_EQ(due({.there = {}, .run_ended = true}, rule), Steps{});
}

TEST(Backlog, TheRuleIsThatOfTheSettings) {
  config::EvalConfig config;
  EXPECT_EQ(backlog_rule(config).policy, Policy::kLatest);
  config.checkpoints = Policy::kInterval;
  config.order = Order::kNewestFirst;
  config.every_steps = 77;
  const BacklogRule rule = backlog_rule(config);
  EXPECT_EQ(rule.policy, Policy::kInterval);
  EXPECT_EQ(rule.order, Order::kNewestFirst);
  EXPECT_EQ(rule.every_steps, 77u);
  config.checkpoints = Policy::kAll;
  EXPECT_EQ(backlog_rule(config).policy, Policy::kAll);
}

}  // namespace
}  // namespace stoker::run
