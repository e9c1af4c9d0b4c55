#include "shared/control/trainer_status.h"

#include <cmath>
#include <limits>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::control {
namespace {

TrainerStatus full() {
  TrainerStatus status;
  status.state = TrainerState::kSaving;
  status.step = 1200;
  status.max_steps = 2000;
  status.epoch = 3;
  status.loss = 1.25;
  status.training_metrics = {{.name = "accuracy", .value = 0.75}};
  status.lr = 3e-4;
  status.samples_per_second = 512.5;
  status.step_time_ms = 31.2;
  status.eta_seconds = 25;
  status.skipped_steps = 6;
  status.rollbacks = 2;
  status.device = "cuda:0";
  status.live_settings = {{"optimizer.lr", "3.0e-04"}};
  status.waiting_for = "step-1/SHA256SUMS";
  status.device_time_ms = 30.5;
  for (size_t i = 0; i < kResources; ++i) status.resources.values()[i] = static_cast<double>(i);
  status.resources[Resource::kDeviceBusy] = std::nan("");
  status.feed = {.data_wait_ms = 0.2,
                 .ready_batches = 7,
                 .queue_capacity = 8,
                 .sample_errors = 1,
                 .requeued_batches = 2,
                 .workers = 4,
                 .worker_crashes = 6,
                 .worker_timeouts = 5,
                 .external_producers = 3,
                 .workers_reading = 0.25,
                 .workers_decoding = 2.5,
                 .workers_transforming = 0.75,
                 .workers_waiting = 1.5};
  status.checkpoint = {.last_saved_step = 1000,
                       .is_saving = true,
                       .stall_ms = 3.5,
                       .commit_ms = 41.5,
                       .saved_total = 5,
                       .failed_total = 1,
                       .skipped_total = 2,
                       .last_error = "disk \"full\"\n"};
  status.evaluator = {.state = "failed",
                      .reason = "no memory",
                      .last_evaluated_step = 800,
                      .best_value = 1.5,
                      .best_step = 600,
                      .best_metric = "val/auroc",
                      .best_direction = "maximize"};
  status.group = {.world_size = 2,
                  .restart_count = 3,
                  .exchange_ms = 1.5,
                  .ranks = {{29.5, 0.25, 0}, {30.5, 0.5, 1'000'000, {1.5, 2e9}}}};
  status.cluster = {.replicas = "async",
                    .stale_gradients = 3,
                    .backup_gradients = 4,
                    .largest_staleness = 2,
                    .tasks = {{.job = "ps",
                               .index = 0,
                               .address = "a:2222",
                               .state = "serving",
                               .parameter_bytes = 4096},
                              {.job = "worker",
                               .index = 0,
                               .address = "b:2222",
                               .state = "lost",
                               .starts = 2,
                               .applied_gradients = 10,
                               .dropped_gradients = 1}}};
  status.control = {.connections = 1,
                    .connections_accepted = 9,
                    .connections_rejected = 2,
                    .requests_total = 30,
                    .requests_failed = 4,
                    .connections_dropped = 3};
  status.data = "3 classes: a, b, c";
  status.run_dir = "/runs/a b";
  status.run_dir_id = "2049:17";
  status.pid = 77;
  status.uptime_seconds = 60.5;
  return status;
}

// The keys of the protocol: the writer and the reader share their list, so a round trip does not see one that
// is missing or misspelled.
TEST(TrainerStatusTest, WritesEachFieldUnderItsKey) {
  EXPECT_EQ(boost::json::parse(to_json(full())), boost::json::parse(R"({
      "state": "saving", "step": 1200, "max_steps": 2000, "epoch": 3, "loss": 1.25,
      "training_metrics": [{"name": "accuracy", "value": 0.75}],
      "lr": 3e-4, "samples_per_second": 512.5, "step_time_ms": 31.2, "device_time_ms": 30.5,
      "eta_seconds": 25.0, "skipped_steps": 6, "rollbacks": 2, "device": "cuda:0",
      "data": "3 classes: a, b, c",
      "live_settings": [{"key": "optimizer.lr", "value": "3.0e-04"}],
      "waiting_for": "step-1/SHA256SUMS",
      "resources": {
          "cpu_cores": 0.0, "rss_bytes": 1.0, "read_bytes_per_second": 2.0,
          "written_bytes_per_second": 3.0, "worker_cpu_cores": 4.0, "worker_rss_bytes": 5.0,
          "worker_read_bytes_per_second": 6.0, "worker_written_bytes_per_second": 7.0,
          "device_busy": null, "device_allocated_bytes": 9.0, "machine_cpu_cores": 10.0,
          "machine_disk_read_bytes_per_second": 11.0, "machine_disk_written_bytes_per_second": 12.0,
          "machine_network_received_bytes_per_second": 13.0,
          "machine_network_sent_bytes_per_second": 14.0, "peak_rss_bytes": 15.0,
          "device_reserved_bytes": 16.0, "device_peak_allocated_bytes": 17.0},
      "feed": {"data_wait_ms": 0.2, "ready_batches": 7, "queue_capacity": 8, "sample_errors": 1,
               "requeued_batches": 2, "workers": 4, "worker_crashes": 6, "worker_timeouts": 5,
               "external_producers": 3, "workers_reading": 0.25, "workers_decoding": 2.5,
               "workers_transforming": 0.75, "workers_waiting": 1.5},
      "checkpoint": {"last_saved_step": 1000, "is_saving": true, "stall_ms": 3.5,
                     "commit_ms": 41.5, "saved_total": 5, "failed_total": 1, "skipped_total": 2,
                     "last_error": "disk \"full\"\n"},
      "evaluator": {"state": "failed", "reason": "no memory", "last_evaluated_step": 800, "best_value": 1.5,
                    "best_step": 600, "best_metric": "val/auroc",
                    "best_direction": "maximize"},
      "group": {"world_size": 2, "restart_count": 3, "exchange_ms": 1.5,
                "ranks": [{"compute_ms": 29.5, "data_wait_ms": 0.25, "optimizer_bytes": 0,
                           "cpu_cores": 0.0, "rss_bytes": 0.0, "read_bytes_per_second": 0.0,
                           "written_bytes_per_second": 0.0, "worker_cpu_cores": 0.0,
                           "worker_rss_bytes": 0.0, "worker_read_bytes_per_second": 0.0,
                           "worker_written_bytes_per_second": 0.0},
                          {"compute_ms": 30.5, "data_wait_ms": 0.5, "optimizer_bytes": 1000000,
                           "cpu_cores": 1.5, "rss_bytes": 2e9, "read_bytes_per_second": 0.0,
                           "written_bytes_per_second": 0.0, "worker_cpu_cores": 0.0,
                           "worker_rss_bytes": 0.0, "worker_read_bytes_per_second": 0.0,
                           "worker_written_bytes_per_second": 0.0}]},
      "cluster": {"replicas": "async", "stale_gradients": 3, "backup_gradients": 4,
                  "largest_staleness": 2,
                  "tasks": [{"job": "ps", "index": 0, "address": "a:2222", "state": "serving",
                             "starts": 0, "applied_gradients": 0, "dropped_gradients": 0,
                             "parameter_bytes": 4096},
                            {"job": "worker", "index": 0, "address": "b:2222", "state": "lost",
                             "starts": 2, "applied_gradients": 10, "dropped_gradients": 1,
                             "parameter_bytes": 0}]},
      "control": {"connections": 1, "connections_accepted": 9, "connections_rejected": 2,
                  "requests_total": 30, "requests_failed": 4, "connections_dropped": 3},
      "run_dir": "/runs/a b", "run_dir_id": "2049:17", "pid": 77, "uptime_seconds": 60.5})"));
}

TEST(TrainerStatusTest, RoundTripsThroughJson) {
  const std::string json = to_json(full());
  EXPECT_EQ(json.find('\n'), std::string::npos);
  const auto read = parse_trainer_status(json);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), json);
}

TEST(TrainerStatusTest, WritesNonfiniteNumbersAsNull) {
  TrainerStatus status = full();
  status.loss = std::nan("");
  status.evaluator.best_value = std::numeric_limits<double>::infinity();
  const std::string json = to_json(status);
  EXPECT_NE(json.find("\"loss\":null"), std::string::npos);
  const auto read = parse_trainer_status(json);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isnan(read->loss));
  EXPECT_TRUE(std::isnan(read->evaluator.best_value));
}

TEST(TrainerStatusTest, WritesTextsAsValidUtf8) {
  TrainerStatus status = full();
  status.checkpoint.last_error = "/data/\xff: disk full";
  status.run_dir = "/runs/\xfe";
  const auto read = parse_trainer_status(to_json(status));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->checkpoint.last_error, "/data/\uFFFD: disk full");
  EXPECT_EQ(read->run_dir, "/runs/\uFFFD");
}

TEST(TrainerStatusTest, ParsesStatusOfOtherReleases) {
  const auto read =
      parse_trainer_status(R"({"state":"paused","step":3,"novelty":[1],"feed":{"new":1}})");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->state, TrainerState::kPaused);
  EXPECT_EQ(read->step, 3u);
}

TEST(TrainerStatusTest, ReportsInvalidField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "JSON object"},
      {"[]", "JSON object"},
      {"{}", "no state or no step"},
      {R"({"state":"paused"})", "no state or no step"},
      {R"({"state":"asleep","step":1})", "asleep"},
      {R"({"state":1,"step":1})", "state"},
      {R"({"state":"paused","step":-1})", "step"},
      {R"({"state":"paused","step":1.5})", "step"},
      {R"({"state":"paused","step":1,"loss":"low"})", "loss"},
      {R"({"state":"paused","step":1,"feed":3})", "feed"},
      {R"({"state":"paused","step":1,"feed":{"workers":"two"}})", "feed.workers"},
      {R"({"state":"paused","step":1,"checkpoint":{"is_saving":0}})", "checkpoint.is_saving"},
      {R"({"state":"paused","step":1,"pid":99999999999})", "pid"},
  };
  for (const auto& [json, message] : cases) {
    const auto read = parse_trainer_status(json);
    ASSERT_FALSE(read.ok()) << json;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt) << json;
    EXPECT_THAT(read.status().message(), testing::HasSubstr(message)) << json;
  }
}

}  // namespace
}  // namespace stoker::control
