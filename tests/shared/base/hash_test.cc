#include "shared/base/hash.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace stoker {
namespace {

// Test vectors of RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesRfc3720TestVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(Crc32cTest, ComputesSameValueByTablesAndByInstruction) {
  std::mt19937_64 random(1);
  std::string bytes(300, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; begin + length <= bytes.size(); ++length) {
      const auto part = std::as_bytes(std::span(bytes)).subspan(begin, length);
      ASSERT_EQ(crc32c_by_tables(part), crc32c(part)) << begin << ' ' << length;
    }
  }
}

TEST(Crc32cTest, ContinuesAcrossChunks) {
  const std::string text = "123456789, and more than eight bytes of it";
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), crc32c(bytes)) << cut;
    EXPECT_EQ(crc32c_by_tables(bytes.subspan(cut), crc32c_by_tables(bytes.first(cut))),
              crc32c(bytes))
        << cut;
  }
}

}  // namespace
}  // namespace stoker
