#include "ctl/status_format.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::ctl {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

control::TrainerStatus training() {
  control::TrainerStatus status;
  status.state = control::TrainerState::kTraining;
  status.step = 10;
  status.max_steps = 20;
  status.samples_per_second = 100;
  status.step_time_ms = 12.5;
  status.device = "cpu";
  return status;
}

// Before the first record, nothing that could be taken for a value.
TEST(StatusFormatTest, ShowsNoValuesWhileRunStarts) {
  control::TrainerStatus status;
  status.waiting_for = "a lock";
  EXPECT_TRUE(std::isnan(status.loss));
  const std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("loss        -\n"));
  EXPECT_THAT(text, HasSubstr("speed       -\n"));
  view::RunSummary summary;
  add_status(summary, status);
  EXPECT_EQ(render_summary_line(summary, {}), "starting step 0  waiting for a lock");
}

TEST(StatusFormatTest, ShowsDeviceTimeAndMemory) {
  control::TrainerStatus status = training();
  status.device_time_ms = 12.3;
  status.resources[Resource::kRss] = 118'000'000;
  status.resources[Resource::kPeakRss] = 120'000'000;
  const std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("12.5 ms/step (12.3 ms device), on cpu\n"));
  EXPECT_THAT(text, HasSubstr("memory      RSS 118 MB (peak 120 MB)\n"));
}

TEST(StatusFormatTest, ShowsAllocatedAndReservedGpuMemory) {
  control::TrainerStatus status = training();
  status.device = "cuda:1";
  status.resources[Resource::kRss] = 1'000'000'000;
  status.resources[Resource::kPeakRss] = 2'000'000'000;
  status.resources[Resource::kDeviceAllocated] = 3'000'000'000;
  status.resources[Resource::kDeviceReserved] = 5'000'000'000;
  status.resources[Resource::kDevicePeakAllocated] = 4'000'000'000;
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("; cuda:1 allocated 3.00 GB (peak 4.00 GB), reserved 5.00 GB\n"));
}

TEST(StatusFormatTest, ShowsProcessorAndTransfer) {
  control::TrainerStatus status = training();
  EXPECT_THAT(render_status(status, {}), Not(HasSubstr("cpu ")));
  ResourceUse& use = status.resources;
  use[Resource::kCpu] = 1.5;
  EXPECT_THAT(render_status(status, {}), HasSubstr("cpu         1.50 cores\n"));
  use[Resource::kWorkerCpu] = 0.25;
  use[Resource::kMachineCpu] = 1.99;
  use[Resource::kDeviceBusy] = 0.879;
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("cpu         1.50 cores, workers 0.250; machine 1.99; device 87 %\n"));
  use[Resource::kWritten] = 2e6;
  use[Resource::kWorkerRead] = 0;
  use[Resource::kNetworkSent] = 3e3;
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("transfer    written 2.00 MB/s; machine: network sent 3.00 kB/s\n"));
}

TEST(StatusFormatTest, CountsErrorsOfFeedAndCheckpoints) {
  control::TrainerStatus status = training();
  status.rollbacks = 2;
  status.eta_seconds = 25;
  status.feed = {.data_wait_ms = 0.1,
                 .ready_batches = 7,
                 .queue_capacity = 8,
                 .sample_errors = 3,
                 .requeued_batches = 2,
                 .workers = 2,
                 .worker_crashes = 1,
                 .worker_timeouts = 1,
                 .external_producers = 1,
                 .workers_reading = 1.2,
                 .workers_waiting = 0.4};
  status.step = 1210;
  status.max_steps = 2420;
  status.checkpoint = {
      .last_saved_step = 1200, .is_saving = true, .stall_ms = 3.5, .saved_total = 1};
  std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("training    step 1 210/2 420 (50 %), epoch 0, ETA 25 s\n"));
  EXPECT_THAT(text, HasSubstr(", 2 rollbacks\n"));
  EXPECT_THAT(text, HasSubstr("feed        data wait 0.100 ms/step, 7/8 batches ready, 2 workers "
                              "(1.2 reading, 0.4 waiting for a slot), 3 sample errors, "
                              "2 batches requeued, 1 worker crash (1 timeout), "
                              "1 external producer\n"));
  EXPECT_THAT(text, HasSubstr("checkpoint  step 1 200, 10 steps ago, stall 3.50 ms, saving\n"));
  EXPECT_THAT(text, HasSubstr("evaluator   not started\n"));
  status.feed.worker_crashes = 2;
  EXPECT_THAT(render_status(status, {}), HasSubstr("2 worker crashes (1 timeout)"));
}

TEST(StatusFormatTest, ShowsTrainingMetricAfterLoss) {
  control::TrainerStatus status = training();
  status.loss = 0.5;
  status.training_metrics = {{.name = "accuracy", .value = 0.75}};
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("loss        0.5000, accuracy 0.7500, learning rate"));
}

TEST(StatusFormatTest, ShowsCheckpointAndEvaluationOfInitialState) {
  control::TrainerStatus status = training();
  EXPECT_THAT(render_status(status, {}), HasSubstr("checkpoint  none\n"));
  status.checkpoint.saved_total = 1;
  status.evaluator = {.state = "running", .best_value = 2.5};
  status.step = 0;
  status.evaluator.best_metric = "val/loss";
  status.evaluator.best_direction = "minimize";
  EXPECT_THAT(render_status(status, {}), HasSubstr("checkpoint  step 0, stall"));
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("evaluator   running\nbest        val/loss 2.500 (minimize) at step 0\n"));
}

TEST(StatusFormatTest, ShowsSlowestRankOfGroup) {
  control::TrainerStatus status = training();
  EXPECT_THAT(render_status(status, {}), Not(HasSubstr("group  ")));
  status.group = {.world_size = 3,
                  .restart_count = 1,
                  .exchange_ms = 9.3,
                  .ranks = {{20, 1}, {21, 2}, {35.2, 14.1}}};
  EXPECT_THAT(
      render_status(status, {}),
      HasSubstr("group       3 ranks, 1 restart; slowest: rank 2, 35.2 ms/step (median 21.0), "
                "data wait 14.1 ms; exchange 9.30 ms/step\n"));
  status.group.ranks = {{20, 1, 3 << 20}, {21, 2, 2 << 20}};
  EXPECT_THAT(render_status(status, {}), HasSubstr("rank 1, 21.0 ms/step (the other 20.0)"));
  EXPECT_THAT(render_status(status, {}),
              ContainsRegex("; optimizer state 2[^ ]* [^ ]+ to 3[^ ]* [^ ]+ per rank\n"));
  status.group = {.world_size = 2};  // before the first report
  EXPECT_THAT(render_status(status, {}), HasSubstr("group       2 ranks\n"));
}

TEST(StatusFormatTest, ShowsTasksOfCluster) {
  control::TrainerStatus status = training();
  EXPECT_THAT(render_status(status, {}), Not(HasSubstr("cluster  ")));
  status.cluster = {
      .replicas = "sync",
      .tasks = {{.job = "ps", .address = "a:1", .state = "serving", .parameter_bytes = 2'000'000},
                {.job = "worker", .address = "b:1", .state = "training"},
                {.job = "worker", .index = 1, .address = "c:1", .state = "waiting"},
                {.job = "worker", .index = 2, .address = "d:1", .state = "training"}}};
  EXPECT_THAT(
      render_status(status, {}),
      ContainsRegex("cluster     sync, 1 parameter server \\([^)]+\\), workers: 2 training, 1 "
                    "waiting\n"));
  status.cluster.tasks[2].state = "lost";
  status.cluster.tasks[3].state = "not_started";
  status.cluster.backup_gradients = 5;
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("workers: 1 lost, 1 not started, 1 training (worker 1 at c:1, worker 2 at "
                        "d:1); gradients dropped: 0 stale, 5 of backups\n"));
  status.cluster.replicas = "async";
  status.cluster.backup_gradients = 0;
  status.cluster.largest_staleness = 3;
  EXPECT_THAT(render_status(status, {}), HasSubstr("; largest staleness 3\n"));
}

TEST(StatusFormatTest, ShowsWhatStartupWaitsFor) {
  control::TrainerStatus status = training();
  status.waiting_for = "a/SHA256SUMS: locked exclusively by pid 7 (rsync)";
  EXPECT_THAT(
      render_status(status, {}),
      HasSubstr("reason      waiting for a/SHA256SUMS: locked exclusively by pid 7 (rsync)\n"));
}

// What a crash would lose, why it is not well, and what to do: also on one line.
TEST(StatusFormatTest, ShowsWhatToDoOfDegradedRun) {
  control::TrainerStatus status = training();
  status.state = control::TrainerState::kDegraded;
  status.step = 33'302;
  status.max_steps = 0;
  status.checkpoint = {.last_saved_step = 22'000, .last_error = "No space left on device"};
  const std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("reason      No space left on device\n"));
  EXPECT_THAT(text,
              HasSubstr("next        fix the cause; 11302 steps since the last checkpoint\n"));
  EXPECT_THAT(text, HasSubstr("checkpoint  step 22 000, 11 302 steps ago"));
  view::RunSummary summary;
  add_status(summary, status);
  EXPECT_THAT(
      render_summary_line(summary, {}),
      ::testing::StartsWith("degraded step 33 302  fix the cause; 11302 steps since the last "
                            "checkpoint  No space left on device"));
}

TEST(StatusFormatTest, ShowsWhyEvaluatorFailed) {
  view::RunSummary summary{.checkpoint = view::RunSummary::Checkpoint{.step = 900, .saved_at = ""},
                           .evaluated_step = 500};
  summary.evaluator = run::EvaluatorState::of("failed", "no memory left");
  EXPECT_EQ(format_evaluator(summary), "failed: no memory left, 400 steps behind");
  summary.evaluated_step = 900;
  summary.evaluator = run::EvaluatorState::of("exited", "");
  EXPECT_EQ(format_evaluator(summary), "exited, up to date");
}

TEST(StatusFormatTest, OmitsFieldsThatDaemonDoesNotReport) {
  const std::string text = render_status(training(), {});
  EXPECT_THAT(text, Not(HasSubstr("waiting")));
  EXPECT_THAT(text, Not(HasSubstr("memory")));
  EXPECT_THAT(text, Not(HasSubstr("device")));
}

}  // namespace
}  // namespace stoker::ctl
