#include "shared/run/evaluation_queue.h"

#include <gtest/gtest.h>

namespace stoker::run {
namespace {

using CheckpointSelection = config::CheckpointSelection;
using Order = config::EvaluationOrder;
using Steps = std::vector<uint64_t>;

struct Scene {
  Steps there;
  std::set<uint64_t> evaluated = {};
  std::set<uint64_t> given_up = {};
  std::set<uint64_t> evaluated_and_gone = {};
  bool run_ended = false;
};

Steps due(const Scene& scene, const SelectionPolicy& selection_policy) {
  EvaluationQueue queue;
  queue.steps = scene.there;
  queue.state = [&](uint64_t step) {
    if (scene.evaluated.contains(step)) return EvaluationState::kEvaluated;
    return scene.given_up.contains(step) ? EvaluationState::kFailed : EvaluationState::kPending;
  };
  queue.evaluated_steps = scene.evaluated;
  queue.evaluated_steps.insert(scene.evaluated_and_gone.begin(), scene.evaluated_and_gone.end());
  queue.run_ended = scene.run_ended;
  return pending_steps(queue, selection_policy);
}

constexpr SelectionPolicy kLatest{.selection = CheckpointSelection::kLatest};
constexpr SelectionPolicy kAll{.selection = CheckpointSelection::kAll};
constexpr SelectionPolicy kEvery{.selection = CheckpointSelection::kInterval, .every_steps = 100};

TEST(EvaluationQueueTest, SelectsAllPendingOldestFirst) {
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}}, kAll), (Steps{10, 30}));
  EXPECT_EQ(due({.there = {10, 20}, .evaluated = {10}, .given_up = {20}}, kAll), Steps{});
}

TEST(EvaluationQueueTest, SelectsNewestFirstOnRequest) {
  SelectionPolicy newest = kAll;
  newest.order = Order::kNewestFirst;
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}}, newest), (Steps{30, 10}));
}

TEST(EvaluationQueueTest, SelectsOnlyNewestWithLatest) {
  EXPECT_EQ(due({.there = {10, 20, 30}}, kLatest), Steps{30});
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {30}}, kLatest), Steps{})
      << "10 and 20 were skipped permanently";
}

TEST(EvaluationQueueTest, FallsBackToOlderCheckpointWhenLatestFailed) {
  EXPECT_EQ(due({.there = {10, 20, 30}, .given_up = {30}}, kLatest), Steps{20});
  EXPECT_EQ(due({.there = {10, 20, 30}, .evaluated = {20}, .given_up = {30}}, kLatest), Steps{});
}

TEST(EvaluationQueueTest, SelectsInitialStateWithIntervals) {
  EXPECT_EQ(due({.there = {0, 40, 120}}, kEvery), (Steps{0, 120}));
  EXPECT_EQ(due({.there = {0, 40, 120}, .evaluated = {0}}, kEvery), Steps{120});
}

TEST(EvaluationQueueTest, SelectsFirstCheckpointOfEachInterval) {
  EXPECT_EQ(due({.there = {40, 80, 120, 160, 200, 240, 410}}, kEvery), (Steps{120, 200, 410}));
  EXPECT_EQ(due({.there = {40, 80}}, kEvery), Steps{});
}

TEST(EvaluationQueueTest, SkipsIntervalWhenItsEvaluatedCheckpointWasDeleted) {
  EXPECT_EQ(due({.there = {160, 210}, .evaluated_and_gone = {120}}, kEvery), Steps{210});
}

TEST(EvaluationQueueTest, SelectsNextCheckpointOfIntervalWhenFirstFailed) {
  EXPECT_EQ(due({.there = {120, 160, 180}, .given_up = {120}}, kEvery), Steps{160});
}

TEST(EvaluationQueueTest, EvaluatesAgainWhenCheckpointWasReplaced) {
  Scene scene{.there = {120, 160}};
  scene.evaluated_and_gone = {120};  // the result belongs to a deleted checkpoint of the same step
  EXPECT_EQ(due(scene, kEvery), Steps{120});
}

TEST(EvaluationQueueTest, SelectsLastCheckpointOfFinishedRun) {
  Scene scene{.there = {120, 160, 180}, .evaluated = {120}, .run_ended = true};
  EXPECT_EQ(due(scene, kEvery), Steps{180});
  scene.evaluated.insert(180);
  EXPECT_EQ(due(scene, kEvery), Steps{});
  EXPECT_EQ(due({.there = {120}, .run_ended = true}, kEvery), Steps{120}) << "once";
  EXPECT_EQ(due({.there = {40}, .run_ended = true}, kEvery), Steps{40}) << "also of a short run";
}

TEST(EvaluationQueueTest, SelectsNothingWithoutCheckpoints) {
  for (const SelectionPolicy& selection_policy : {kLatest, kAll, kEvery})
    EXPECT_EQ(due({.there = {}, .run_ended = true}, selection_policy), Steps{});
}

TEST(EvaluationQueueTest, DerivesPolicyFromConfig) {
  config::EvalConfig config;
  EXPECT_EQ(make_selection_policy(config).selection, CheckpointSelection::kLatest);
  config.checkpoints = CheckpointSelection::kInterval;
  config.order = Order::kNewestFirst;
  config.every_steps = 77;
  const SelectionPolicy selection_policy = make_selection_policy(config);
  EXPECT_EQ(selection_policy.selection, CheckpointSelection::kInterval);
  EXPECT_EQ(selection_policy.order, Order::kNewestFirst);
  EXPECT_EQ(selection_policy.every_steps, 77u);
  config.checkpoints = CheckpointSelection::kAll;
  EXPECT_EQ(make_selection_policy(config).selection, CheckpointSelection::kAll);
}

}  // namespace
}  // namespace stoker::run
