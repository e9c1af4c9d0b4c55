// Programs that hold flock() locks on checkpoints while stokerd starts: the matrix of
// docs/operations.md#locked-checkpoints with real processes.
#include <signal.h>

#include <filesystem>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file_locks.h"
#include "tests/daemon/service/notify_listener.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointLockTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, run_dir()).code, 0);
    saved_ = checkpoints(run_dir());
    ASSERT_GE(saved_.size(), 2u);
    records_ = text_of(run_dir() + "/metrics/train.jsonl");
    fs::remove(path("stokerd.out"));
  }
  std::string file(const std::string& checkpoint, const std::string& name) const {
    return run_dir() + "/checkpoints/" + checkpoint + "/" + name;
  }
  // A process that holds the lock until it is destroyed.
  Process lock(const std::string& file, bool is_exclusive) const {
    Process holder(
        {"flock", "--no-fork", is_exclusive ? "--exclusive" : "--shared", file, "sleep", "1000"},
        path("flock.out"));
    EXPECT_TRUE(wait_until(60s, [&] {
      const FileLocks locks = FileLocks::read();
      return is_exclusive ? locks.find_exclusive_holder(file) == holder.pid()
                          : locks.is_locked(file);
    })) << text_of(path("flock.out"));
    return holder;
  }
  // Exit code of a start. With `fast`, the timeout of 30 s takes 0.1 s.
  int start(bool fast) const {
    fs::remove(path("stokerd.out"));
    Process trainer({fast ? STOKER_FAST_STOKERD : program("stokerd"), "--config", config_,
                     "--run-dir", run_dir()},
                    path("stokerd.out"));
    const auto ended = trainer.wait(90s);
    EXPECT_TRUE(ended.has_value()) << "stokerd did not exit";
    return ended ? ended->code : -1;
  }
  void expect_unchanged() const {
    EXPECT_EQ(checkpoints(run_dir()), saved_);
    EXPECT_EQ(text_of(run_dir() + "/metrics/train.jsonl"), records_);
    for (const auto& entry : fs::recursive_directory_iterator(run_dir()))
      EXPECT_EQ(entry.path().string().find("archived"), std::string::npos) << entry.path();
  }

  std::string config_;
  std::vector<std::string> saved_;  // names
  std::string records_;
};

TEST_F(CheckpointLockTest, ResumesFromNewestDespiteSharedLocksAndExitsWith75OnExclusiveOnes) {
  for (const bool is_exclusive : {false, true})
    for (const char* const name : {"SHA256SUMS", "manifest.json", "model.safetensors"})
      for (const bool is_newest_only : {true, false}) {
        SCOPED_TRACE(std::string(is_exclusive ? "exclusive " : "shared ") + name +
                     (is_newest_only ? ", newest" : ", all"));
        std::vector<Process> holders;
        holders.push_back(lock(file(saved_.back(), name), is_exclusive));
        for (size_t i = 0; !is_newest_only && i + 1 < saved_.size(); ++i)
          holders.push_back(lock(file(saved_[i], name), is_exclusive));
        // Six starts in a row end with 75; if they counted, the fifth would end with 93.
        EXPECT_EQ(start(is_exclusive), is_exclusive ? 75 : 0) << log_of("stokerd");
        if (is_exclusive) {
          EXPECT_THAT(log_of("stokerd"),
                      HasSubstr(file(saved_.back(), name) + ": locked exclusively by pid " +
                                std::to_string(holders[0].pid()) + " (sleep 1000) for 30 s"));
          EXPECT_THAT(text_of(run_dir() + "/exit_status.json"), HasSubstr(R"("exit_code":0)"))
              << "of the run, which this start has not continued";
        } else {
          EXPECT_THAT(log_of("stokerd"), HasSubstr("run resumed step=400 "));
        }
        EXPECT_FALSE(fs::exists(run_dir() + "/restart_count.json"));
        expect_unchanged();
      }
}

TEST_F(CheckpointLockTest, ReportsWhatItWaitsForUntilStoppedOrReleased) {
  service::NotifyListener systemd(service::NotifyListener::Kind::kPath);
  const std::string sums = file(saved_.back(), "SHA256SUMS");
  for (const bool is_released : {false, true}) {
    SCOPED_TRACE(is_released ? "released" : "stopped");
    std::optional<Process> holder(lock(sums, true));
    const std::string waiting =
        sums + ": locked exclusively by pid " + std::to_string(holder->pid()) + " (sleep 1000)";
    fs::remove(path("stokerd.out"));
    Process trainer({"env", "NOTIFY_SOCKET=" + systemd.name(), program("stokerd"), "--config",
                     config_, "--run-dir", run_dir()},
                    path("stokerd.out"));
    std::string messages;
    EXPECT_TRUE(wait_until(60s,
                           [&] {
                             for (const std::string& message : systemd.take())
                               messages += message + "\n";
                             return messages.find("STATUS=waiting: " + waiting) !=
                                    std::string::npos;
                           }))
        << messages << log_of("stokerd");
    expect_logged("stokerd", "warning checkpoint locked reason=\"" + waiting);
    (void)ctl(run_dir(), {"status"}, "status").wait(60s);
    EXPECT_THAT(log_of("status"), HasSubstr("reason      waiting for " + waiting));
    if (is_released) {
      holder.reset();
    } else {
      trainer.signal(SIGTERM);
    }
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value()) << log_of("stokerd");
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(log_of("stokerd").find("run resumed step=400 ") != std::string::npos, is_released);
    expect_unchanged();
  }
}

}  // namespace
}  // namespace stoker::test
