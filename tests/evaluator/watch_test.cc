#include <unistd.h>

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "evaluator/checkpoint_watch.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

class WatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-watch-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(WatchTest, WakesWhenACheckpointIsRenamedIntoPlace) {
  CheckpointWatch watch(folder_);
  std::filesystem::create_directory(folder_ + "/.tmp-x");
  std::filesystem::rename(folder_ + "/.tmp-x", folder_ + "/step-000000001");
  watch.wait(1h, {});  // the test's own time limit fails it when nothing wakes
}

TEST_F(WatchTest, WakesForADirectoryThatIsMadeLater) {
  CheckpointWatch watch(folder_ + "/checkpoints");
  watch.wait(1ms, {});
  std::filesystem::create_directories(folder_ + "/checkpoints");
  watch.wait(1ms, {});  // attaches
  std::filesystem::create_directory(folder_ + "/checkpoints/step-000000001");
  watch.wait(1h, {});
}

TEST_F(WatchTest, AStopEndsTheWait) {
  CheckpointWatch watch(folder_);
  std::jthread waiter([&](std::stop_token stop) { watch.wait(1h, stop); });
  waiter.request_stop();
}

}  // namespace
}  // namespace stoker::evaluator
