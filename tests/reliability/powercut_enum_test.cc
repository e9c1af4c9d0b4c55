// Power cuts before each system call that changes the disk, on a real ext4, during start, save,
// retention and end of a run. Each cut is followed by a remount and a restart.
#include <filesystem>
#include <iostream>
#include <memory>

#include "tests/reliability/loop_disk.h"
#include "tests/reliability/minimal_run_check.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

using PowerLoss = LoopDisk::PowerLoss;

class PowerCutEnumerationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
    if (const auto why = LoopDisk::unavailable_reason()) GTEST_SKIP() << *why;
    LoopDisk::format(base_image_);
  }

  // From here on, each run resumes at step 15 and removes the leftovers of a crash.
  void start_with_leftovers() {
    const LoopDisk disk(base_image_, mount_);
    ASSERT_NO_FATAL_FAILURE(make_run_with_leftovers(run_, folder_ / "base.out"));
    first_step_ = 15;
  }

  std::unique_ptr<LoopDisk> new_disk() {
    const std::string image = folder_ / "image";
    std::filesystem::copy_file(base_image_, image,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove(output_);
    return std::make_unique<LoopDisk>(image, mount_);
  }

  // Number of changes of a run; of a new run, only those before its second checkpoint is
  // acknowledged.
  size_t count_changes() {
    const auto disk = new_disk();
    size_t changes = 0;
    const auto end = run_minimal_run(run_, output_, [&](const FileCall& call) {
      changes +=
          call.changes && (first_step_ > 0 || newest_saved(output_) < 2 * kMinimalRunSaveEvery);
      return Verdict::kContinue;
    });
    EXPECT_EQ(end.code, 0);
    return changes;
  }

  void lose_power_before(size_t change, PowerLoss power_loss) {
    const auto disk = new_disk();
    size_t seen = 0;
    std::string location = "after the end";
    uint64_t acknowledged = first_step_;
    const auto simulate_power_loss = [&] {
      acknowledged = std::max(acknowledged, newest_saved(output_));
      disk->simulate_power_loss(power_loss);
    };
    const auto end = run_minimal_run(run_, output_, [&](const FileCall& call) {
      if (!call.changes || ++seen != change) return Verdict::kContinue;
      location = to_string(call);
      simulate_power_loss();
      return Verdict::kKill;
    });
    if (end.signal == 0) simulate_power_loss();
    disk->power_on();
    SCOPED_TRACE(location);
    ++(newest_visible(run_) == first_step_ ? old_ : newer_);
    EXPECT_TRUE(all_checkpoints_valid(run_, acknowledged));
    EXPECT_TRUE(resumes_to_same_result(run_, output_));
  }

  void lose_power_at_every_change(PowerLoss power_loss) {
    ASSERT_FALSE(HasFailure());
    const size_t changes = count_changes();
    ASSERT_GE(changes, 60u);
    for (size_t change = 1; change <= changes && !HasFailure(); ++change)
      lose_power_before(change, power_loss);
    if (HasFailure()) return;
    std::cout << "enumerated: " << changes << " power cuts, " << old_
              << " with the old checkpoint, " << newer_ << " with a new one, 0 failures\n";
  }

  TemporaryDirectory folder_{quick_folder()};
  const std::string base_image_ = folder_ / "base.image";
  const std::string mount_ = folder_ / "disk";
  const std::string run_ = mount_ + "/run";
  const std::string output_ = folder_ / "output";
  uint64_t first_step_ = 0;
  size_t old_ = 0;
  size_t newer_ = 0;
};

TEST_F(PowerCutEnumerationTest, RecoversNewRunFromPowerCutAtAnyCall) {
  lose_power_at_every_change(PowerLoss::kNothingFlushed);
}

TEST_F(PowerCutEnumerationTest, RecoversNewRunFromPowerCutWithFlushedJournal) {
  lose_power_at_every_change(PowerLoss::kJournalFlushed);
}

TEST_F(PowerCutEnumerationTest, RecoversResumedRunFromPowerCutAtAnyCall) {
  start_with_leftovers();
  lose_power_at_every_change(PowerLoss::kNothingFlushed);
}

TEST_F(PowerCutEnumerationTest, RecoversResumedRunFromPowerCutWithFlushedJournal) {
  start_with_leftovers();
  lose_power_at_every_change(PowerLoss::kJournalFlushed);
}

// A disk that reports a sync without performing it; the checksums detect the lost data.
TEST_F(PowerCutEnumerationTest, FallsBackToPreviousCheckpointOnFalseFsync) {
  ASSERT_NO_FATAL_FAILURE(start_with_leftovers());
  const auto disk = new_disk();
  const auto end = run_minimal_run(run_, output_, [&](const FileCall& call) {
    if (call.name == "fsync" && call.path.find("/.tmp-step-000000025") != std::string::npos)
      return Verdict::kSkip;
    if (call.to.find("/.trash-step-000000015") == std::string::npos) return Verdict::kContinue;
    disk->simulate_power_loss(PowerLoss::kJournalFlushed);
    return Verdict::kKill;
  });
  ASSERT_NE(end.signal, 0);
  disk->power_on();
  ASSERT_EQ(newest_visible(run_), 25u);
  ASSERT_FALSE(all_checkpoints_valid(run_, 0)) << "the disk lost no data";
  EXPECT_TRUE(resumes_to_same_result(run_, output_));
  EXPECT_TRUE(said(output_, "checkpoint rejected step=25"));
}

}  // namespace
}  // namespace stoker::test
