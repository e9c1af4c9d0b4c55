#include "shared/base/hash.h"

#include <sys/mman.h>

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace stoker {
namespace {

// By the definition, bit by bit, with the reversed Castagnoli polynomial.
uint32_t bitwise_crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

// Test vectors of RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesRfc3720TestVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(Crc32cTest, MatchesBitwiseDefinitionAtAnyAlignmentAndLength) {
  std::mt19937_64 random(1);
  std::string bytes(600, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; begin + length <= bytes.size(); ++length) {
      const auto part = std::as_bytes(std::span(bytes)).subspan(begin, length);
      ASSERT_EQ(crc32c(part), bitwise_crc32c(part)) << begin << ' ' << length;
    }
  }
}

TEST(Crc32cTest, ContinuesAcrossChunks) {
  const std::string text = "123456789, and more than eight bytes of it";
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), crc32c(bytes)) << cut;
  }
}

// Longer than what ISA-L accepts in one call; the pages are never written and need no memory.
TEST(Crc32cTest, ComputesChecksumOfMoreThanOneGibibyte) {
  constexpr size_t kBytes = (size_t{1} << 30) + 100;
  void* const zeros =
      ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::span bytes(static_cast<const std::byte*>(zeros), kBytes);
  EXPECT_EQ(crc32c(bytes),
            crc32c(bytes.last(kBytes / 3), crc32c(bytes.first(kBytes - kBytes / 3))));
  ::munmap(zeros, kBytes);
}

}  // namespace
}  // namespace stoker
