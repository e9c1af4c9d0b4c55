// Checkpoint writes that fail: full, read-only and missing disks, file size limits, and checkpoints
// of another run. The faults are listed in docs/fault-tolerance.md.
#include <signal.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Unmounts on destruction, also when the test fails.
class Mount {
 public:
  explicit Mount(std::string path) : path_(std::move(path)) { fs::create_directories(path_); }
  ~Mount() {
    if (is_mounted_) (void)::umount2(path_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  bool mount(const char* what, const char* kind, const std::string& options) {
    return is_mounted_ = ::mount(what, path_.c_str(), kind, 0, options.c_str()) == 0;
  }
  bool remount(unsigned long flags, const std::string& options) const {
    return ::mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | flags, options.c_str()) == 0;
  }

 private:
  const std::string path_;
  bool is_mounted_ = false;
};

class CheckpointFaultTest : public RunTest {
 protected:
  // Uses a tmpfs if it can be mounted, so that other load on the disk of the machine cannot cause
  // failures.
  void SetUp() override {
    RunTest::SetUp();
    disk_.emplace(path("disk"));
    (void)disk_->mount("tmpfs", "tmpfs", "mode=0755,size=300m");
  }
  void TearDown() override {
    disk_.reset();
    RunTest::TearDown();
  }
  std::string run_dir(const std::string& name = "run") const { return path("disk/" + name); }

  // Saves a checkpoint of about 0.3 MB as often as possible; training runs until it is stopped.
  std::vector<std::string> endless_options(const std::vector<std::string>& more = {}) const {
    return joined(
        {"--set", "train.max_steps=100000000", "--set", "model.hidden_sizes=[128, 128]", "--set",
         "checkpoint.save_every_steps=100", "--set", "metrics.log_every_steps=1000"},
        more);
  }
  bool log_contains(const std::string& words) const {
    return log_of("stokerd").find(words) != std::string::npos;
  }
  bool wait_for(const std::function<bool()>& condition) const {
    return wait_until(120s, condition);
  }
  std::string status(const std::string& run) const {
    fs::remove(path("status.out"));
    (void)ctl(run, {"--json", "status"}, "status").wait(60s);
    return log_of("status");
  }
  bool is_degraded(const std::string& run) const {
    return status(run).find(R"("state":"degraded")") != std::string::npos;
  }
  // The checkpoint disk fails and recovers; training must not be affected by either.
  void expect_recovery(Process& trainer, const std::function<void()>& damage,
                       const std::function<void()>& repair, const std::string& faulty_run) {
    ASSERT_TRUE(wait_for([&] { return newest_step(run_dir()) > 0; }));
    damage();
    EXPECT_TRUE(wait_for([&] { return log_contains("checkpoint abandoned"); }))
        << log_of("stokerd");
    EXPECT_TRUE(wait_for([&] { return is_degraded(faulty_run); })) << log_of("status");
    EXPECT_TRUE(wait_for([&] {
      return text_if_exists(faulty_run + "/metrics/train.jsonl").find(R"("degraded":1)") !=
             std::string::npos;
    }));
    const uint64_t before = newest_step(faulty_run);
    repair();
    EXPECT_TRUE(wait_for([&] { return newest_step(run_dir()) > before; })) << log_of("stokerd");
    EXPECT_TRUE(wait_for([&] { return !is_degraded(run_dir()); }));
    trainer.signal(SIGTERM);
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0);
  }

  std::optional<Mount> disk_;
};

TEST_F(CheckpointFaultTest, DegradesUntilFullDiskHasSpaceAgain) {
  Mount disk(run_dir() + "/checkpoints");
  if (!disk.mount("tmpfs", "tmpfs", "mode=0755,size=3m"))
    GTEST_SKIP() << "cannot mount a small tmpfs here";
  const std::string filler = run_dir() + "/checkpoints/filler";
  Process trainer = this->trainer(write_config(small_config()), run_dir(), endless_options());
  expect_recovery(
      trainer, [&] { std::ofstream(filler) << std::string(3 << 20, 'x'); },
      [&] { fs::remove(filler); }, run_dir());
}

TEST_F(CheckpointFaultTest, ExitsWith74OnFullDiskWhenConfigured) {
  Mount disk(run_dir() + "/checkpoints");
  if (!disk.mount("tmpfs", "tmpfs", "mode=0755,size=200k"))
    GTEST_SKIP() << "cannot mount a small tmpfs here";
  EXPECT_EQ(train(write_config(small_config()), run_dir(),
                  endless_options({"--set", "checkpoint.on_write_error=fail"}))
                .code,
            74);
  EXPECT_TRUE(log_contains("checkpoint.on_write_error is fail"));
}

// SIGXFSZ must be ignored; otherwise it would end the run immediately.
TEST_F(CheckpointFaultTest, ReportsFileSizeLimitAsError) {
  const std::string config = write_config(small_config());
  Process trainer({"sh", "-c", "ulimit -f 200; exec \"$@\"", "sh", program("stokerd"), "--config",
                   config, "--run-dir", run_dir(), "--set", "train.max_steps=100000000", "--set",
                   "model.hidden_sizes=[256, 256]", "--set", "checkpoint.save_every_steps=100",
                   "--set", "checkpoint.on_write_error=fail"},
                  path("stokerd.out"));
  const auto ended = trainer.wait(90s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 74) << log_of("stokerd");
  EXPECT_TRUE(log_contains("File too large")) << log_of("stokerd");
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

TEST_F(CheckpointFaultTest, ExitsWith78OnReadOnlyDirectoryAtStart) {
  const std::string config = write_config(small_config());
  Mount disk(path("read-only"));
  if (!disk.mount("tmpfs", "tmpfs", "mode=0755,size=1m") || !disk.remount(MS_RDONLY, "size=1m"))
    GTEST_SKIP() << "cannot mount a read-only disk here";
  EXPECT_EQ(train(config, path("read-only/run")).code, 78);
  EXPECT_TRUE(log_contains(path("read-only/run"))) << log_of("stokerd");
  EXPECT_TRUE(log_contains("Read-only file system")) << log_of("stokerd");
}

TEST_F(CheckpointFaultTest, DegradesWhileDiskIsReadOnly) {
  Mount disk(run_dir() + "/checkpoints");
  if (!disk.mount("tmpfs", "tmpfs", "mode=0755,size=30m"))
    GTEST_SKIP() << "cannot mount a tmpfs here";
  Process trainer = this->trainer(write_config(small_config()), run_dir(), endless_options());
  expect_recovery(
      trainer,
      // The remount fails as long as a checkpoint is being written.
      [&] { EXPECT_TRUE(wait_for([&] { return disk.remount(MS_RDONLY, "size=30m"); })); },
      [&] { EXPECT_TRUE(disk.remount(0, "size=30m")); }, run_dir());
}

TEST_F(CheckpointFaultTest, RecoversAfterMovedRunDirectoryReturns) {
  Process trainer = this->trainer(write_config(small_config()), run_dir(), endless_options());
  expect_recovery(
      trainer, [&] { fs::rename(run_dir(), run_dir("moved")); },
      [&] {
        EXPECT_FALSE(fs::exists(run_dir())) << "it was created again";
        fs::rename(run_dir("moved"), run_dir());
      },
      run_dir("moved"));
  EXPECT_TRUE(log_contains("moved or removed; restore it")) << log_of("stokerd");
}

TEST_F(CheckpointFaultTest, DoesNotTouchReplacementRunDirectory) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), endless_options());
  ASSERT_TRUE(wait_for([&] { return newest_step(run_dir()) > 0; }));
  fs::rename(run_dir(), run_dir("moved"));
  EXPECT_TRUE(wait_for([&] { return log_contains("checkpoint abandoned"); }));
  ASSERT_EQ(train(config, run_dir(), {"--set", "control.socket=null"}).code, 0);
  const auto saved = checkpoints(run_dir());
  const std::string end = text_of(run_dir() + "/exit_status.json");
  trainer.signal(SIGTERM);
  ASSERT_TRUE(trainer.wait(60s).has_value());
  EXPECT_EQ(checkpoints(run_dir()), saved);
  EXPECT_EQ(text_of(run_dir() + "/exit_status.json"), end);
}

// An unmounted volume or a moved directory must not look like a new run.
TEST_F(CheckpointFaultTest, ExitsWith65WhenCheckpointsOfSavedRunAreMissing) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const std::string records = text_of(run_dir() + "/metrics/train.jsonl");
  const std::string checkpoints_dir = run_dir() + "/checkpoints";
  fs::rename(checkpoints_dir, run_dir("volume"));
  EXPECT_EQ(train(config, run_dir()).code, 65);
  EXPECT_FALSE(fs::exists(checkpoints_dir)) << "mv would then move the original into it";
  EXPECT_TRUE(log_contains(checkpoints_dir + ": does not exist, but this run has saved step 400"))
      << log_of("stokerd");
  EXPECT_TRUE(log_contains("--fresh")) << log_of("stokerd");
  fs::create_directory(checkpoints_dir);
  EXPECT_EQ(train(config, run_dir()).code, 65);
  EXPECT_TRUE(log_contains(checkpoints_dir + ": has no checkpoint, but")) << log_of("stokerd");
  EXPECT_EQ(text_of(run_dir() + "/metrics/train.jsonl"), records);
  fs::remove(checkpoints_dir);
  // On request, a checkpoint somewhere else is used, and --fresh starts over.
  EXPECT_EQ(train(config, run_dir(),
                  {"--resume", run_dir("volume/step-000000400"), "--set", "train.max_steps=440"})
                .code,
            0);
  EXPECT_EQ(newest_step(run_dir()), 440u);
  fs::remove_all(checkpoints_dir);
  EXPECT_EQ(train(config, run_dir(), {"--fresh", "--set", "train.max_steps=40"}).code, 0);
  EXPECT_EQ(newest_step(run_dir()), 40u);
}

TEST_F(CheckpointFaultTest, ResumesFromPreviousCheckpointWithWarningWhenLastIsRemoved) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const uint64_t previous =
      *checkpoint::CheckpointStore::parse_checkpoint_name(checkpoints(run_dir()).end()[-2]);
  const std::string model = model_sha256(run_dir(), 400);
  fs::remove_all(run_dir() + "/checkpoints/step-000000400");
  EXPECT_EQ(train(config, run_dir()).code, 0);
  EXPECT_TRUE(log_contains("last checkpoint missing step=" + std::to_string(previous) +
                           " last_saved_step=400"))
      << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), 400), model);
}

TEST_F(CheckpointFaultTest, ResumesBitForBitOnOverlayFileSystem) {
  const std::string config = write_config(small_config());
  const std::vector<std::string> more_steps{"--set", "train.max_steps=40000",
                                            "--set", "checkpoint.save_every_steps=100",
                                            "--set", "metrics.log_every_steps=47"};
  ASSERT_EQ(train(config, run_dir("uninterrupted"), more_steps).code, 0);
  // The upper layer of an overlay cannot be on another overlay.
  Mount lower_disk(path("below"));
  Mount overlay(path("overlay"));
  bool is_mounted = lower_disk.mount("tmpfs", "tmpfs", "mode=0755,size=200m");
  for (const char* const name : {"lower", "upper", "work"})
    fs::create_directories(path(std::string("below/") + name));
  is_mounted = is_mounted && overlay.mount("overlay", "overlay",
                                           "lowerdir=" + path("below/lower") +
                                               ",upperdir=" + path("below/upper") +
                                               ",workdir=" + path("below/work"));
  if (!is_mounted) GTEST_SKIP() << "cannot mount an overlay here";
  const std::string run = path("overlay/run");
  {
    Process trainer = this->trainer(config, run, more_steps);
    ASSERT_TRUE(wait_for([&] { return newest_step(run) > 0; }));
    (void)trainer.kill();
  }
  EXPECT_EQ(train(config, run, more_steps).code, 0);
  EXPECT_EQ(model_sha256(run, 40000), model_sha256(run_dir("uninterrupted"), 40000));
  EXPECT_EQ(deterministic_records(run), deterministic_records(run_dir("uninterrupted")));
}

TEST_F(CheckpointFaultTest, RejectsCheckpointOfAnotherArchitecture) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir("other"), {"--set", "model.hidden_sizes=[16, 16]"}).code, 0);
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  fs::copy(run_dir("other") + "/checkpoints/step-000000400",
           run_dir() + "/checkpoints/step-000000400", fs::copy_options::recursive);
  const auto before = checkpoints(run_dir());
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_TRUE(log_contains("[16, 32]")) << "the shapes are missing: " << log_of("stokerd");
  EXPECT_TRUE(log_contains("--allow-model-change")) << log_of("stokerd");
  EXPECT_EQ(checkpoints(run_dir()), before);
}

TEST_F(CheckpointFaultTest, RejectsCheckpointOfAnotherOptimizer) {
  const std::string config = write_config(small_config());
  const std::vector<std::string> sgd{"--set", "optimizer.name=sgd", "--set",
                                     "optimizer.momentum=0.9"};
  ASSERT_EQ(train(config, run_dir("other")).code, 0);
  ASSERT_EQ(train(config, run_dir(), joined(sgd, {"--set", "train.max_steps=40"})).code, 0);
  fs::copy(run_dir("other") + "/checkpoints/step-000000400",
           run_dir() + "/checkpoints/step-000000400", fs::copy_options::recursive);
  EXPECT_EQ(train(config, run_dir(), sgd).code, 78);
  EXPECT_TRUE(log_contains("momentum_buffer.")) << log_of("stokerd");
  EXPECT_TRUE(log_contains("--allow-model-change")) << log_of("stokerd");
}

}  // namespace
}  // namespace stoker::test
