#include "bench/benchmark.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace stoker::bench {
namespace {

// Throws if the line is no JSON.
boost::json::object parsed(const std::vector<double>& values, const std::vector<double>& baseline) {
  return boost::json::parse(to_json({.bench = "ring",
                                     .metric = "time of a batch",
                                     .unit = "ms",
                                     .values = values,
                                     .baseline = "memcpy",
                                     .baseline_values = baseline}))
      .as_object();
}

TEST(BenchmarkLineTest, HasMedianOfRatios) {
  const auto line = parsed({2, 30, 8}, {1, 10, 2});
  EXPECT_EQ(line.at("ratio").as_double(), 3) << "not 8 / 2, the ratio of the medians";
  EXPECT_EQ(line.at("value").as_double(), 8);
  EXPECT_EQ(line.at("baseline_value").as_double(), 2);
}

TEST(BenchmarkLineTest, IsJsonWithoutRatioIfBaselineMeasuredZero) {
  for (const double value : {0.0, 4.0}) {
    const auto line = parsed({4, 4, value}, {2, 2, 0});
    EXPECT_TRUE(line.at("ratio").is_null());
    EXPECT_EQ(line.at("baseline_spread").as_array().at(0).as_double(), 0);
  }
}

}  // namespace
}  // namespace stoker::bench
