#include "daemon/service/restart_count.h"

#include <filesystem>
#include <fstream>

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

// After a power cut the boot is another one; a machine that is lost has another name.
TEST_F(RestartCountTest, CountsStartsOfOneBootOfOneHost) {
  for (const char* const machine : {"a 1", "a 2", "b 2", "a 1", "a 2", "b 2", "a 1"})
    EXPECT_TRUE(*RestartCount(default_file_system(), file(), machine).record_start(0)) << machine;
  for (int i = 1; i < 4; ++i)
    EXPECT_TRUE(*RestartCount(default_file_system(), file(), "a 1").record_start(0)) << i;
  EXPECT_FALSE(*RestartCount(default_file_system(), file(), "a 1").record_start(0));
}

TEST_F(RestartCountTest, IdentifiesTheBoot) {
  const std::string boot_id = folder_ / "boot_id";
  ASSERT_TRUE(write_file_atomically(default_file_system(), boot_id, "1234\n").ok());
  const std::string first = identify_boot(boot_id);
  EXPECT_EQ(identify_boot(boot_id), first);
  ASSERT_TRUE(write_file_atomically(default_file_system(), boot_id, "1235\n").ok());
  EXPECT_NE(identify_boot(boot_id), first);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  EXPECT_EQ(identify_boot(), boot);
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
