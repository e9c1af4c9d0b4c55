#include "shared/run/early_stop_request.h"

#include <gtest/gtest.h>

namespace stoker::run {
namespace {

TEST(EarlyStopRequestTest, RoundTripsThroughJson) {
  const EarlyStopRequest request{
      .step = 1200, .rule = "val/loss patience=3", .reason = "no \"better\""};
  const auto read = parse_early_stop_request(to_json(request), "early_stop.json");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->step, 1200u);
  EXPECT_EQ(read->rule, request.rule);
  EXPECT_EQ(read->reason, request.reason);
}

TEST(EarlyStopRequestTest, ReportsCorruptFileWithPath) {
  for (const char* const text : {"", "{", "[]", "{}", R"({"step":-1,"rule":"","reason":""})",
                                 R"({"step":1,"rule":2,"reason":""})"}) {
    const auto read = parse_early_stop_request(text, "run/eval/early_stop.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(read.status().message().find("run/eval/early_stop.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace stoker::run
