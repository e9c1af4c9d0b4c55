#include "evaluator/directory_watcher.h"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
using Backend = DirectoryWatcher::Backend;

class DirectoryWatcherTest : public ::testing::Test {
 protected:
  test::TemporaryDirectory scratch_;
};

// If a wait of one hour does not end early, the time limit of the test fails it.

TEST_F(DirectoryWatcherTest, WakesWaiterWhenCheckpointIsRenamedIntoPlace) {
  DirectoryWatcher watch({scratch_.path()});
  std::filesystem::create_directory(scratch_ / ".tmp-x");
  std::filesystem::rename(scratch_ / ".tmp-x", scratch_ / "step-000000001");
  watch.wait(1h, {});
}

TEST_F(DirectoryWatcherTest, WakesForAnyWatchedDirectory) {
  std::filesystem::create_directory(scratch_ / "other");
  DirectoryWatcher watch({scratch_.path(), scratch_ / "other"});
  std::filesystem::create_directory(scratch_ / "other/step-000000001");
  watch.wait(1h, {});
}

TEST_F(DirectoryWatcherTest, WakesForDirectoryCreatedLaterAndItsEntries) {
  DirectoryWatcher watch({scratch_ / "run/checkpoints"});
  watch.wait(1ms, {});
  std::filesystem::create_directories(scratch_ / "run/checkpoints");
  watch.wait(1h, {});
  std::filesystem::create_directory(scratch_ / "run/checkpoints/step-000000001");
  watch.wait(1h, {});
}

TEST_F(DirectoryWatcherTest, FindsDirectoryCreatedLaterWithoutInotify) {
  DirectoryWatcher watch({scratch_ / "run"}, Backend::kNone);
  std::filesystem::create_directory(scratch_ / "run");
  watch.wait(1h, {});
  watch.wait(1ms, {});  // no event is pending any more; only the timeout ends this wait
}

TEST_F(DirectoryWatcherTest, WatchesReplacedDirectory) {
  std::filesystem::create_directory(scratch_ / "run");
  DirectoryWatcher watch({scratch_ / "run"});
  std::filesystem::rename(scratch_ / "run", scratch_ / "archive-1");
  watch.wait(1h, {});
  std::filesystem::create_directory(scratch_ / "run");
  watch.wait(1h, {});
  std::filesystem::create_directory(scratch_ / "run/checkpoints");
  watch.wait(1h, {});
}

TEST_F(DirectoryWatcherTest, EndsWaitOnStop) {
  for (const Backend backend : {Backend::kInotify, Backend::kNone}) {
    DirectoryWatcher watch({scratch_.path()}, backend);
    std::jthread waiter([&](std::stop_token stop) { watch.wait(1h, stop); });
    waiter.request_stop();
  }
}

}  // namespace
}  // namespace stoker::evaluator
