#include "shared/metrics/tensorboard_messages.h"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "shared/base/hash.h"

namespace stoker::metrics {
namespace {

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<uint8_t>(c) >> 4];
    text += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

TEST(EventMessageTest, EncodesFileVersionExpectedByTensorBoard) {
  EXPECT_EQ(hex(encode_file_version(1.0)), "09000000000000f03f1a0d627261696e2e4576656e743a32");
}

TEST(EventMessageTest, EncodesScalarAsTagAndFloat) {
  // wall 1.0, step 300, summary { value { tag "a" simple_value 2.0 } }
  EXPECT_EQ(hex(encode_scalar(1.0, 300, "a", 2.0f)),
            "09000000000000f03f10ac022a0a0a080a01611500000040");
}

// A string of protobuf is UTF-8.
TEST(EventMessageTest, WritesTagsAsValidUtf8) {
  EXPECT_EQ(encode_scalar(1.0, 1, "loss/\xff", 2.0f), encode_scalar(1.0, 1, "loss/\uFFFD", 2.0f));
  EXPECT_EQ(encode_plugin_content(1.0, "_hparams_/\xff", "hparams", "\xff"),
            encode_plugin_content(1.0, "_hparams_/\uFFFD", "hparams", "\xff"))
      << "the content is bytes";
}

TEST(EventMessageTest, EncodesStepInSessionStart) {
  EXPECT_EQ(hex(encode_session_start(1.0, 5)), "09000000000000f03f10053a020801");
}

TEST(EventMessageTest, EncodesMaximumStepInTenBytes) {
  const std::string event = encode_scalar(0, std::numeric_limits<uint64_t>::max(), "", 0);
  EXPECT_EQ(hex(event.substr(10, 10)), "ffffffffffffffffff01");
}

TEST(EventMessageTest, FramesRecordWithLengthAndBothChecksums) {
  const std::string frame = frame_record("abc");
  ASSERT_EQ(frame.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(hex(frame.substr(0, 8)), "0300000000000000");
  EXPECT_EQ(frame.substr(12, 3), "abc");
  uint32_t of_length = 0;
  uint32_t of_data = 0;
  std::memcpy(&of_length, frame.data() + 8, 4);
  std::memcpy(&of_data, frame.data() + 15, 4);
  EXPECT_EQ(of_length, masked_crc32c(frame.substr(0, 8)));
  EXPECT_EQ(of_data, masked_crc32c("abc"));
}

}  // namespace
}  // namespace stoker::metrics
