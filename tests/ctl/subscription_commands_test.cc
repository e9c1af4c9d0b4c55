#include "ctl/subscription_commands.h"

#include <gtest/gtest.h>

namespace stoker::ctl {
namespace {

TEST(SubscriptionCommandsTest, FormatsEventAsInLog) {
  const auto line = format_event_line(
      R"({"time":"2026-01-31T12:00:00.123Z","level":"info","event":"checkpoint saved","step":1200,)"
      R"("path":"a b","error":"","ok":true,"name":"x"})");
  ASSERT_TRUE(line.ok()) << line.status().to_string();
  EXPECT_EQ(*line,
            "2026-01-31T12:00:00.123Z info    checkpoint saved step=1200 path=\"a b\" error=\"\" "
            "ok=true name=x");
}

TEST(SubscriptionCommandsTest, EscapesControlCharactersOfEvent) {
  const auto line = format_event_line(
      "{\"time\":\"t\",\"level\":\"warning\",\"event\":\"e\",\"a\":\"\\u001b[2J\"}");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->find('\x1b'), std::string::npos);
  EXPECT_EQ(format_event_line("{}").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::ctl
