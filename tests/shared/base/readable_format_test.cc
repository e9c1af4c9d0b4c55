#include "shared/base/readable_format.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace stoker {
namespace {

// The page has the same table (page_test.py).
TEST(ReadableFormatTest, FormatsNumbersAsTable) {
  const std::map<std::string, std::function<std::string(const std::string&)>> formats{
      {"value",
       [](const std::string& text) { return format_value(std::strtod(text.c_str(), nullptr)); }},
      {"rate",
       [](const std::string& text) { return format_rate(std::strtod(text.c_str(), nullptr)); }},
      {"milliseconds",
       [](const std::string& text) {
         return format_milliseconds(std::strtod(text.c_str(), nullptr));
       }},
      {"count", [](const std::string& text) { return format_count(std::stoull(text)); }},
      {"bytes", [](const std::string& text) { return format_bytes(std::stoull(text)); }},
      {"duration",
       [](const std::string& text) { return format_duration(std::strtod(text.c_str(), nullptr)); }},
      {"estimate", [](const std::string& text) {
         return format_estimate(std::strtod(text.c_str(), nullptr));
       }}};
  std::ifstream table(STOKER_READABLE_FORMATS);
  std::map<std::string, int> counts;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string name, number, text;
    std::getline(fields, name, '\t');
    std::getline(fields, number, '\t');
    std::getline(fields, text);
    EXPECT_EQ(formats.at(name)(number), text) << name << " of " << number;
    ++counts[name];
  }
  EXPECT_EQ(counts.size(), formats.size());
}

TEST(ReadableFormatTest, NamesNumbersThatAreNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(format_value(nan), "NaN");
  EXPECT_EQ(format_value(-infinity), "-inf");
  EXPECT_EQ(format_duration(nan), "-");
  EXPECT_EQ(format_estimate(infinity), "-");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
  EXPECT_EQ(format_count(std::numeric_limits<uint64_t>::max()), "18 446 744 073 709 551 615");
}

TEST(ReadableFormatTest, WritesSettingsAsPeopleDo) {
  EXPECT_EQ(format_setting(0.00030000000000000003), "0.0003");
  EXPECT_EQ(format_setting(1.5e-5), "1.5e-05");
}

// 2026-01-31 was a Saturday; Berlin is an hour ahead of UTC in winter, and two in summer.
TEST(ReadableFormatTest, NamesZoneOfTimes) {
  const char* const before = std::getenv("TZ");
  ::setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  EXPECT_EQ(format_local_time("2026-01-31T22:30:05.900Z"), "Sat 2026-01-31 23:30:05 CET");
  EXPECT_EQ(format_local_time("2026-07-31T22:30:05.000Z"), "Sat 2026-08-01 00:30:05 CEST");
  EXPECT_EQ(format_local_time("yesterday"), "yesterday");
  ::setenv("TZ", "UTC", 1);
  EXPECT_EQ(local_zone(), "UTC");
  if (before == nullptr)
    ::unsetenv("TZ");
  else
    ::setenv("TZ", std::string(before).c_str(), 1);
}

}  // namespace
}  // namespace stoker
