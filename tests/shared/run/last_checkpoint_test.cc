#include "shared/run/last_checkpoint.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

TEST(LastCheckpointTest, RoundTripsThroughFile) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "last_checkpoint.json";
  EXPECT_FALSE(read_last_checkpoint(path)->has_value());
  const LastCheckpoint last{.step = 1200, .manifest_sha256 = std::string(64, 'a')};
  ASSERT_TRUE(write_last_checkpoint(default_file_system(), path, last).ok());
  EXPECT_EQ(read_last_checkpoint(path)->value(), last);
}

TEST(LastCheckpointTest, RejectsInvalidFile) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "last_checkpoint.json";
  for (const std::string text :
       {"", "{}", "[1]", R"({"step":-1,"manifest_sha256":"a"})", R"({"step":1})"}) {
    test::write_whole(path, text);
    const auto read = read_last_checkpoint(path);
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(read.status().message(), testing::HasSubstr(path));
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(read_last_checkpoint(path).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::run
