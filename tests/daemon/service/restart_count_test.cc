#include "daemon/service/restart_count.h"

#include <stdlib.h>

#include <filesystem>

#include <gtest/gtest.h>

namespace stoker::service {
namespace {

class RestartCountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-starts-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // Each start is another process.
  bool start(uint64_t newest_step) const {
    const auto may = RestartCount(real_files(), file()).note_start(newest_step);
    EXPECT_TRUE(may.ok()) << may.status().to_string();
    return may.ok() && *may;
  }
  std::string file() const { return folder_ + "/restart_count.json"; }

  std::string folder_;
};

TEST_F(RestartCountTest, FaultRow83AStartAndThreeRestartsInVainAreAllTheyGet) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(start(100)) << i;
  EXPECT_FALSE(start(100));
}

TEST_F(RestartCountTest, WhoIsAskedAgainAfterARefusalTriesAgain) {
  for (int i = 0; i < 5; ++i) (void)start(0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(start(0)) << i;
  EXPECT_FALSE(start(0));
}

TEST_F(RestartCountTest, ANewCheckpointBeginsTheCountAnew) {
  for (uint64_t step = 0; step < 20; ++step) {
    EXPECT_TRUE(start(step));
    EXPECT_TRUE(start(step));
  }
}

TEST_F(RestartCountTest, ACleanEndForgets) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(start(100));
    EXPECT_TRUE(RestartCount(real_files(), file()).forget().ok());
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_TRUE(RestartCount(real_files(), file()).forget().ok());
}

TEST_F(RestartCountTest, AStartThatIsTakenBackLeavesTheCountAsItWas) {
  for (const int in_vain : {0, 3}) {
    for (int i = 0; i < in_vain; ++i) EXPECT_TRUE(start(100));
    for (int i = 0; i < 20; ++i) {
      RestartCount refused(real_files(), file());
      ASSERT_TRUE(refused.note_start(100).ok());
      EXPECT_TRUE(refused.take_back().ok());
    }
    EXPECT_EQ(std::filesystem::exists(file()), in_vain > 0);
  }
  EXPECT_TRUE(start(100)) << "the fourth";
  EXPECT_FALSE(start(100));
}

TEST_F(RestartCountTest, ADamagedFileCountsNothing) {
  for (const char* text : {"", "{", "[]", "{\"step\":1}", "{\"step\":-1,\"starts\":\"x\"}"}) {
    ASSERT_TRUE(write_file_atomically(real_files(), file(), text).ok());
    EXPECT_TRUE(start(1)) << text;
  }
}

}  // namespace
}  // namespace stoker::service
