#include "daemon/monitoring/metrics_text.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::monitoring {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

control::TrainerStatus some_status() {
  control::TrainerStatus status;
  status.state = control::TrainerState::kPaused;
  status.step = 1200;
  status.loss = 0.25;
  status.training_metrics = {{.name = "accuracy", .value = 0.5}};
  status.step_time_ms = 20;
  status.device = "cpu";
  status.feed.data_wait_ms = 1.5;
  status.feed.sample_errors = 3;
  status.checkpoint.saved_total = 4;
  for (size_t i = 0; i < kResources; ++i) status.resources.values()[i] = 0.5 + double(i);
  return status;
}

TEST(MetricsTextTest, HasBaseUnitsAndLabels) {
  const std::string text = to_metrics_text(some_status(), "1.0.0 \"a\\b\"");
  EXPECT_THAT(text, HasSubstr("# TYPE stoker_step gauge\nstoker_step 1200\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_state{state=\"paused\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_state{state=\"training\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_train_metric{name=\"accuracy\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_data_wait_seconds 0.0015\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE stoker_sample_errors_total counter\n"
                              "stoker_sample_errors_total 3\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_cpu_cores 0.5\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_rss_bytes 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_machine_disk_read_bytes_per_second 11.5\n"));
  EXPECT_THAT(text, HasSubstr("version=\"1.0.0 \\\"a\\\\b\\\"\""));
}

TEST(MetricsTextTest, OmitsUnknownValues) {
  control::TrainerStatus status = some_status();
  status.loss = std::numeric_limits<double>::quiet_NaN();
  status.training_metrics = {};
  status.resources = {};
  const std::string text = to_metrics_text(status, "1");
  EXPECT_THAT(text, Not(HasSubstr("stoker_device_reserved_bytes")));
  EXPECT_THAT(text, Not(HasSubstr("stoker_train_loss")));
  EXPECT_THAT(text, Not(HasSubstr("stoker_train_metric")));
  EXPECT_THAT(text, Not(HasSubstr("stoker_evaluator_best_value")));
}

TEST(MetricsTextTest, HasWorkersAndGradientsOfCluster) {
  control::TrainerStatus status = some_status();
  EXPECT_THAT(to_metrics_text(status, "1"),
              ::testing::AllOf(HasSubstr("\nstoker_ranks 1\n"), Not(HasSubstr("cluster"))));
  status.group.world_size = 4;
  status.feed.workers_reading = std::numeric_limits<double>::quiet_NaN();
  status.cluster.replicas = "async";
  status.cluster.stale_gradients = 5;
  status.cluster.largest_staleness = 7;
  for (const char* const state : {"lost", "training", "lost"})
    status.cluster.tasks.push_back({.job = "worker", .state = state});
  status.cluster.tasks.push_back({.job = "ps", .state = "serving"});
  const std::string text = to_metrics_text(status, "1");
  EXPECT_THAT(text, HasSubstr("\nstoker_ranks 4\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_cluster_workers{state=\"lost\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_cluster_workers{state=\"waiting\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE stoker_gradients_dropped_total counter\n"
                              "stoker_gradients_dropped_total{reason=\"stale\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("\nstoker_largest_staleness_updates 7\n"));
  EXPECT_THAT(text, Not(HasSubstr("state=\"reading\"")));
}

// Counters of the checkpoint are 0 until it is loaded.
TEST(MetricsTextTest, OmitsCountersBeforeTraining) {
  control::TrainerStatus status = some_status();
  status.state = control::TrainerState::kStarting;
  const std::string text = to_metrics_text(status, "1");
  EXPECT_THAT(text, HasSubstr("\nstoker_state{state=\"starting\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("stoker_sample_errors_total")));
  EXPECT_THAT(text, Not(HasSubstr("stoker_step ")));
}

// Names, types and units as promtool demands; prometheus_test.sh runs promtool itself.
TEST(MetricsTextTest, FollowsNamingRules) {
  std::istringstream lines(to_metrics_text(some_status(), "1"));
  std::set<std::string> names;
  size_t series = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex("# TYPE (\\S+) (\\S+)"))) {
      const std::string name = match[1];
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_TRUE(name.starts_with("stoker_")) << name;
      EXPECT_EQ(name.ends_with("_total"), match[2] == "counter") << name;
      EXPECT_FALSE(std::regex_search(name, std::regex("_(ms|mib|milliseconds|minutes)(_|$)")));
    }
    if (!line.empty() && line[0] != '#') ++series;
  }
  EXPECT_GT(names.size(), 20u);
  EXPECT_GT(series, 50u);
  EXPECT_LE(series, 500u);
}

// docs/examples/grafana-dashboard.json: JSON, and only metrics that exist, also with labels.
TEST(GrafanaDashboardTest, UsesMetricsThatExist) {
  std::ifstream file(STOKER_EXAMPLES "/grafana-dashboard.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto dashboard = boost::json::parse(text).as_object();
  control::TrainerStatus status = some_status();
  status.evaluator.best_value = 0.5;
  const std::string metrics = "\n" + to_metrics_text(status, "1");
  size_t expressions = 0;
  for (const auto& panel : dashboard.at("panels").as_array()) {
    for (const auto& target : panel.at("targets").as_array()) {
      const std::string expression(target.at("expr").as_string());
      const std::regex name("stoker_[a-z_]+");
      for (std::sregex_iterator one(expression.begin(), expression.end(), name), end; one != end;
           ++one, ++expressions)
        EXPECT_TRUE(metrics.find("\n" + one->str() + " ") != std::string::npos ||
                    metrics.find("\n" + one->str() + "{") != std::string::npos)
            << one->str() << " in " << expression;
    }
  }
  EXPECT_GT(expressions, 20u);
}

}  // namespace
}  // namespace stoker::monitoring
