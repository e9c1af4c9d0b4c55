#include "daemon/train/profile.h"

#include <map>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

// Steps of 10, 12 and 20 ms. Each waits 1 ms for data and computes for 7 ms; the rest is `other`.
Profile three_steps() {
  Profile profile{.device = "cpu", .steps = {}};
  std::chrono::nanoseconds at = 5ms;
  uint64_t number = 41;
  for (const auto length : {10ms, 12ms, 20ms}) {
    profile.steps.push_back({.step = number++,
                             .begin = at,
                             .end = at + length,
                             .spans = {{Phase::kDataWait, at, at + 1ms},
                                       {Phase::kForward, at + 1ms, at + 3ms},
                                       {Phase::kBackward, at + 3ms, at + 6ms},
                                       {Phase::kForward, at + 6ms, at + 8ms}},
                             .device_spans = {}});
    at += length;
  }
  return profile;
}

std::map<std::string, json::object> phases_of(const json::object& summary) {
  std::map<std::string, json::object> phases;
  for (const auto& phase : summary.at("phases").as_array())
    phases[std::string(phase.at("phase").as_string())] = phase.as_object();
  return phases;
}

TEST(ProfileTest, SumsPhaseTimesToTotal) {
  const json::object summary = summarize(three_steps());
  EXPECT_EQ(summary.at("first_step").to_number<int>(), 41);
  EXPECT_EQ(summary.at("last_step").to_number<int>(), 43);
  EXPECT_EQ(summary.at("steps").to_number<int>(), 3);
  EXPECT_NEAR(summary.at("total_ms").to_number<double>(), 42, 1e-9);
  EXPECT_NEAR(summary.at("median_ms").to_number<double>(), 12, 1e-9);
  double sum = 0, share = 0;
  for (const auto& [name, phase] : phases_of(summary)) {
    sum += phase.at("sum_ms").to_number<double>();
    share += phase.at("share").to_number<double>();
  }
  EXPECT_NEAR(sum, 42, 1e-9);
  EXPECT_NEAR(share, 1, 1e-5);
}

TEST(ProfileTest, SumsRepeatedPhaseWithinStep) {
  const auto phases = phases_of(summarize(three_steps()));
  EXPECT_NEAR(phases.at("forward").at("median_ms").to_number<double>(), 4, 1e-9);
  EXPECT_NEAR(phases.at("forward").at("sum_ms").to_number<double>(), 12, 1e-9);
  // The median of 2, 4 and 12.
  EXPECT_NEAR(phases.at("other").at("median_ms").to_number<double>(), 4, 1e-9);
  EXPECT_NEAR(phases.at("snapshot").at("sum_ms").to_number<double>(), 0, 1e-9);
  EXPECT_FALSE(phases.at("forward").contains("device_median_ms"));
}

TEST(ProfileTest, ReportsDeviceTimesInAdditionToThreadTimes) {
  Profile profile = three_steps();
  profile.device = "cuda:0";
  for (ProfiledStep& step : profile.steps)
    step.device_spans = {{Phase::kForward, step.begin + 4ms, step.begin + 9ms}};
  const auto phases = phases_of(summarize(profile));
  EXPECT_NEAR(phases.at("forward").at("device_median_ms").to_number<double>(), 5, 1e-9);
  EXPECT_NEAR(phases.at("forward").at("median_ms").to_number<double>(), 4, 1e-9);
  EXPECT_NE(to_chrome_trace(profile).find("\"name\":\"cuda:0\""), std::string::npos);
}

// The fields that chrome://tracing and Perfetto require in a complete event.
void check_event(const json::object& event) {
  EXPECT_TRUE(event.at("name").is_string());
  EXPECT_TRUE(event.at("pid").is_int64());
  EXPECT_TRUE(event.at("tid").is_int64());
  EXPECT_GE(event.at("ts").to_number<double>(), 0);
  EXPECT_GE(event.at("dur").to_number<double>(), 0);
}

TEST(ProfileTest, NestsEachSpanInsideItsStepInTrace) {
  const json::value trace = json::parse(to_chrome_trace(three_steps()));
  std::map<int64_t, std::pair<double, double>> steps;
  size_t spans = 0, names = 0;
  for (const auto& one : trace.at("traceEvents").as_array()) {
    const json::object& event = one.as_object();
    const auto kind = event.at("ph").as_string();
    if (kind == "M") {
      ++names;
      continue;
    }
    ASSERT_EQ(kind, "X");
    check_event(event);
    const auto step = event.at("args").at("step").to_number<int64_t>();
    const double begin = event.at("ts").to_number<double>();
    const double end = begin + event.at("dur").to_number<double>();
    if (event.at("tid").to_number<int>() == 0) {
      steps[step] = {begin, end};
    } else {
      ++spans;
      EXPECT_GE(begin, steps.at(step).first);
      EXPECT_LE(end, steps.at(step).second + 1e-6);
    }
  }
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_EQ(spans, 12u);
  EXPECT_GE(names, 3u);                           // of the process and the rows
  EXPECT_NEAR(steps.at(42).first, 15'000, 1e-6);  // microseconds
}

TEST(ProfileTest, WritesEmptyTraceWithoutSteps) {
  EXPECT_TRUE(json::parse(to_chrome_trace({.device = "cpu", .steps = {}})).is_object());
  EXPECT_EQ(summarize({.device = "cpu", .steps = {}}).at("steps").to_number<int>(), 0);
}

}  // namespace
}  // namespace stoker::train
