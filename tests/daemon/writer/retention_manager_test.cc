#include "daemon/writer/retention_manager.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::writer {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

const eval_metrics::MetricTable kTable(
    {{.name = "loss"}, {.name = "accuracy", .direction = eval_metrics::Direction::kMaximize}});

class RetentionManagerTest : public testing::Test {
 protected:
  RetentionManagerTest() {
    config_.eval.datasets = {"val"};
    config_.checkpoint.keep_last = 2;
    config_.checkpoint.save_top_k = 0;
    std::filesystem::create_directories(layout_.eval_dir());
  }

  void save(uint64_t step, const std::string& live = "{}") {
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    content.manifest.live_settings = live;
    content.manifest.created_at = to_iso8601(clock_.wall());
    const auto saved = store_.commit(content);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  void save_up_to(uint64_t last) {
    for (uint64_t step = 1; step <= last; ++step) save(step);
  }
  std::string path_of(uint64_t step) const {
    return join_path(store_.directory(), checkpoint::CheckpointStore::checkpoint_name(step));
  }
  std::string manifest_of(uint64_t step) const {
    return checkpoint::CheckpointStore::open_verified(path_of(step))->manifest_sha256();
  }
  void evaluate(uint64_t step, double loss, double accuracy = 0) {
    const run::EvalResult result{
        .step = step,
        .manifest_sha256 = manifest_of(step),
        .datasets = {{.dataset = "val",
                      .samples = 1,
                      .metrics = {{"loss", loss}, {"accuracy", accuracy}}}},
        .seconds = 1,
        .created = "now"};
    ASSERT_TRUE(run::write_eval_result(files_, layout_.eval_dir(), result).ok());
  }
  void settle(uint64_t step, const std::string& outcome) {
    std::ofstream(layout_.evaluation_outcomes_file(), std::ios::app)
        << R"({"step":)" << step << R"(,"manifest_sha256":")" << manifest_of(step)
        << R"(","outcome":")" << outcome << "\"}\n";
  }
  std::vector<uint64_t> remaining_steps(bool is_disk_full = false) {
    RetentionManager(config_, kTable, store_, layout_, clock_).delete_expired(is_disk_full);
    return saved_steps();
  }
  std::vector<uint64_t> saved_steps() const {
    std::vector<uint64_t> steps;
    for (const auto& entry : *store_.list()) steps.push_back(entry.step);
    return steps;
  }

  test::TemporaryDirectory root_;
  test::FaultyFiles files_{root_.path()};
  run::RunLayout layout_{root_.path()};
  checkpoint::CheckpointStore store_{layout_.checkpoints_dir(), files_};
  ManualClock clock_;
  config::Config config_;
};

TEST_F(RetentionManagerTest, RetainsLastCheckpointsAndStepMultiples) {
  config_.checkpoint.keep_every_steps = 4;
  save_up_to(7);
  EXPECT_THAT(remaining_steps(), ElementsAre(4, 6, 7));
}

TEST_F(RetentionManagerTest, RetainsOneCheckpointPerHourInterval) {
  config_.checkpoint.keep_every_hours = 1.5;
  for (uint64_t step = 1; step <= 9; ++step) {
    save(step);
    clock_.advance(30min);
  }
  EXPECT_THAT(remaining_steps(), ElementsAre(1, 4, 7, 8, 9));
}

TEST_F(RetentionManagerTest, RetainsBestByConfiguredMetrics) {
  save_up_to(6);
  evaluate(1, 0.3, 0.9);
  evaluate(2, 0.1, 0.5);
  evaluate(3, 0.2, 0.7);
  evaluate(4, 0.4, 0.1);
  config_.checkpoint.save_top_k = 1;
  config_.eval.monitor = "accuracy";
  config_.checkpoint.monitor = {"val/loss", "accuracy"};
  EXPECT_THAT(remaining_steps(), ElementsAre(1, 2, 5, 6));
  config_.checkpoint.monitor.clear();
  EXPECT_THAT(remaining_steps(), ElementsAre(1, 5, 6))
      << "eval.monitor decides where nothing else does";
}

TEST_F(RetentionManagerTest, IgnoresResultOfAnotherCheckpointWithSameStep) {
  config_.checkpoint.save_top_k = 1;
  save_up_to(4);
  const run::EvalResult result{
      .step = 1,
      .manifest_sha256 = std::string(64, 'a'),
      .datasets = {{.dataset = "val", .samples = 1, .metrics = {{"loss", 0}}}},
      .seconds = 1,
      .created = "now"};
  ASSERT_TRUE(run::write_eval_result(files_, layout_.eval_dir(), result).ok());
  EXPECT_THAT(remaining_steps(), ElementsAre(3, 4));
}

TEST_F(RetentionManagerTest, RetainsBestCheckpointOfEvaluator) {
  config_.checkpoint.save_top_k = 1;
  save_up_to(5);
  test::write_whole(layout_.best_file(),
                    run::to_json(run::BestCheckpoint{.dataset = "val",
                                                     .metric = "loss",
                                                     .value = 1,
                                                     .step = 2,
                                                     .manifest_sha256 = manifest_of(2)}));
  EXPECT_THAT(remaining_steps(), ElementsAre(2, 4, 5));
}

TEST_F(RetentionManagerTest, RetainsUnevaluatedCheckpoints) {
  config_.eval.checkpoints = config::CheckpointSelection::kAll;
  config_.checkpoint.keep_unevaluated = 20;
  save_up_to(6);
  settle(1, "evaluated");
  settle(3, "failed");
  EXPECT_THAT(remaining_steps(), ElementsAre(2, 4, 5, 6));
  settle(2, "evaluated");
  EXPECT_THAT(remaining_steps(), ElementsAre(4, 5, 6));
}

TEST_F(RetentionManagerTest, DeletesUnevaluatedCheckpointsThatEvaluatorWillSkip) {
  config_.eval.checkpoints = config::CheckpointSelection::kLatest;
  config_.checkpoint.keep_unevaluated = 20;
  save_up_to(6);
  EXPECT_THAT(remaining_steps(), ElementsAre(5, 6));
}

TEST_F(RetentionManagerTest, RetainsUnevaluatedCheckpointSelectedPerInterval) {
  config_.eval.checkpoints = config::CheckpointSelection::kInterval;
  config_.eval.every_steps = 4;
  config_.checkpoint.keep_unevaluated = 20;
  save_up_to(10);
  EXPECT_THAT(remaining_steps(), ElementsAre(4, 8, 9, 10));
  settle(4, "evaluated");
  settle(8, "failed");
  EXPECT_THAT(remaining_steps(), ElementsAre(9, 10)) << "9 stands for the span of 8 now";
}

// Without an evaluator the number of unevaluated checkpoints is bounded too.
TEST_F(RetentionManagerTest, LimitsUnevaluatedCheckpointsWithoutEvaluator) {
  config_.eval.checkpoints = config::CheckpointSelection::kAll;
  config_.checkpoint.keep_unevaluated = 4;
  save_up_to(9);
  EXPECT_THAT(remaining_steps(), ElementsAre(6, 7, 8, 9));
}

TEST_F(RetentionManagerTest, OverridesOnlyUnevaluatedAndMinAgeOnFullDisk) {
  config_.eval.checkpoints = config::CheckpointSelection::kAll;
  config_.checkpoint.keep_unevaluated = 20;
  config_.checkpoint.min_age_seconds = 3600;
  config_.checkpoint.keep_every_steps = 3;
  save_up_to(6);
  EXPECT_EQ(remaining_steps().size(), 6U);
  EXPECT_THAT(remaining_steps(true), ElementsAre(3, 5, 6));
}

TEST_F(RetentionManagerTest, RetainsCheckpointsYoungerThanMinAge) {
  config_.checkpoint.min_age_seconds = 100;
  save_up_to(5);
  clock_.advance(99s);
  EXPECT_EQ(remaining_steps().size(), 5U);
  clock_.advance(2s);
  EXPECT_THAT(remaining_steps(), ElementsAre(4, 5));
}

TEST_F(RetentionManagerTest, ExcludesCorruptCheckpointsFromKeepLast) {
  save_up_to(6);
  settle(5, "corrupt");
  settle(6, "corrupt");
  EXPECT_THAT(remaining_steps(), ElementsAre(3, 4, 5, 6));
}

TEST_F(RetentionManagerTest, RetainsIncompleteCheckpointsWithoutCountingThem) {
  save_up_to(6);
  std::filesystem::remove(path_of(5) + "/optimizer.safetensors");
  std::filesystem::remove(path_of(1) + "/SHA256SUMS");
  EXPECT_THAT(remaining_steps(), ElementsAre(1, 4, 5, 6));
}

TEST_F(RetentionManagerTest, AppliesRulesOfChangedConfiguration) {
  config_.eval.checkpoints = config::CheckpointSelection::kAll;
  RetentionManager retention_manager(config_, kTable, store_, layout_, clock_);
  const auto steps_after_save_of = [&](uint64_t step) {
    save(step);
    retention_manager.set_policy(config_);
    retention_manager.delete_expired(false);
    return saved_steps();
  };
  save_up_to(3);
  EXPECT_THAT(steps_after_save_of(4), ElementsAre(3, 4));
  config_.checkpoint.keep_last = 3;
  EXPECT_THAT(steps_after_save_of(5), ElementsAre(3, 4, 5));
  config_.checkpoint.keep_every_steps = 3;
  EXPECT_THAT(steps_after_save_of(6), ElementsAre(3, 4, 5, 6));
  config_.checkpoint.keep_every_steps.reset();
  config_.checkpoint.keep_unevaluated = 5;
  EXPECT_THAT(steps_after_save_of(7), ElementsAre(3, 4, 5, 6, 7));
}

// on_nonfinite: skip_step continues, and saves checkpoints, while no step changes the parameters.
TEST_F(RetentionManagerTest, RetainsLastFiniteCheckpointAfterNonfiniteSteps) {
  save_up_to(3);
  for (uint64_t step = 4; step <= 9; ++step) save(step, R"({"consecutive_nonfinite":2})");
  EXPECT_THAT(remaining_steps(), ElementsAre(3, 8, 9));
  save(10, R"({"consecutive_nonfinite":0})");
  EXPECT_THAT(remaining_steps(), ElementsAre(9, 10));
}

TEST_F(RetentionManagerTest, DefersDeletionWhileCheckpointIsOpen) {
  save_up_to(4);
  RetentionManager retention_manager(config_, kTable, store_, layout_, clock_);
  {
    const auto held = checkpoint::CheckpointStore::open_verified(path_of(1));
    ASSERT_TRUE(held.ok());
    retention_manager.delete_expired(false);
    clock_.advance(2h);  // logged, but still not deleted
    retention_manager.delete_expired(true);
    EXPECT_TRUE(std::filesystem::exists(path_of(1)));
    EXPECT_FALSE(std::filesystem::exists(path_of(2)));
  }
  retention_manager.delete_expired(false);
  EXPECT_FALSE(std::filesystem::exists(path_of(1)));
}

TEST_F(RetentionManagerTest, RetainsCheckpointsWhenLocksFail) {
  save_up_to(4);
  files_.fail_locks(true);
  EXPECT_EQ(remaining_steps(true).size(), 4U) << "even if the disk is full";
  files_.fail_locks(false);
  EXPECT_THAT(remaining_steps(), ElementsAre(3, 4));
}

TEST_F(RetentionManagerTest, DeletesNothingWhenOutcomeFileIsUnreadable) {
  save_up_to(4);
  std::filesystem::create_directories(layout_.evaluation_outcomes_file());
  EXPECT_EQ(remaining_steps().size(), 4U);
}

}  // namespace
}  // namespace stoker::writer
