#include "daemon/service/restart_count.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::service {
namespace {

class RestartCountTest : public ::testing::Test {
 protected:
  // Each start uses a new object, as a new process would.
  bool start(uint64_t newest_step) const {
    const auto may = RestartCount(default_file_system(), file()).record_start(newest_step);
    EXPECT_TRUE(may.ok()) << may.status().to_string();
    return may.ok() && *may;
  }
  std::string file() const { return folder_ / "restart_count.json"; }

  const test::TemporaryDirectory folder_;
};

TEST_F(RestartCountTest, RejectsFifthStartWithoutProgress) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(start(100)) << i;
  EXPECT_FALSE(start(100));
}

TEST_F(RestartCountTest, AllowsStartsAgainAfterRejection) {
  for (int i = 0; i < 5; ++i) (void)start(0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(start(0)) << i;
  EXPECT_FALSE(start(0));
}

TEST_F(RestartCountTest, ResetsCountOnNewCheckpoint) {
  for (uint64_t step = 0; step < 20; ++step) {
    EXPECT_TRUE(start(step));
    EXPECT_TRUE(start(step));
  }
}

TEST_F(RestartCountTest, RemovesCountOnCleanExit) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(start(100));
    EXPECT_TRUE(RestartCount(default_file_system(), file()).reset().ok());
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_TRUE(RestartCount(default_file_system(), file()).reset().ok());
}

TEST_F(RestartCountTest, RestoresCountWhenStartIsUndone) {
  for (const int failed_starts : {0, 3}) {
    for (int i = 0; i < failed_starts; ++i) EXPECT_TRUE(start(100));
    for (int i = 0; i < 20; ++i) {
      RestartCount rejected(default_file_system(), file());
      ASSERT_TRUE(rejected.record_start(100).ok());
      EXPECT_TRUE(rejected.undo().ok());
    }
    EXPECT_EQ(std::filesystem::exists(file()), failed_starts > 0);
  }
  EXPECT_TRUE(start(100)) << "the fourth";
  EXPECT_FALSE(start(100));
}

TEST_F(RestartCountTest, IgnoresCorruptFile) {
  for (const char* text : {"", "{", "[]", "{\"step\":1}", "{\"step\":-1,\"starts\":\"x\"}"}) {
    ASSERT_TRUE(write_file_atomically(default_file_system(), file(), text).ok());
    EXPECT_TRUE(start(1)) << text;
  }
}

}  // namespace
}  // namespace stoker::service
