#include "shared/base/number_format.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

namespace stoker {
namespace {

TEST(NumberFormatTest, FormatsShortestDigitsThatReadAsTheNumber) {
  EXPECT_EQ(format_shortest(0.1), "0.1");
  EXPECT_EQ(format_shortest(0.1f), "0.1");
  EXPECT_EQ(format_shortest(1e-8), "1e-08");
  EXPECT_EQ(format_shortest(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  for (const double number : {1.0 / 3, 5e-324, -1.7976931348623157e308})
    EXPECT_EQ(std::strtod(format_shortest(number).c_str(), nullptr), number);
}

TEST(NumberFormatTest, FormatsExactAsPrintf) {
  EXPECT_EQ(format_exact(0.1), "0.10000000000000001");
  for (const double number : {0.0, -0.5, 1.0 / 3, 1e22, 123456789012345678.0, 5e-324,
                              -1.7976931348623157e308, std::nan("")}) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", number);
    EXPECT_EQ(format_exact(number), text);
  }
}

TEST(NumberFormatTest, RoundsMebibytesUp) {
  EXPECT_EQ(format_mib(0), "0 MiB");
  EXPECT_EQ(format_mib(1), "1 MiB");
  EXPECT_EQ(format_mib(3 << 20), "3 MiB");
  EXPECT_EQ(format_mib((3 << 20) + 1), "4 MiB");
  EXPECT_EQ(format_mib(~uint64_t{0}), "17592186044416 MiB");
}

}  // namespace
}  // namespace stoker
