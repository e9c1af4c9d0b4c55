// The real programs are killed before each change that they make to the run directory, by SIGKILL
// or by a power loss, and restarted. STOKER_FAULT_TESTS=full covers every change; otherwise a few
// of each kind, spread over the run.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>

#include <gmock/gmock.h>

#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "tests/reliability/acknowledged_checkpoints.h"
#include "tests/reliability/loop_disk.h"
#include "tests/reliability/tracer.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

enum class CrashKind { kKill, kPowerCut, kPowerCutWithFlushedJournal };

std::string name_of(CrashKind crash) {
  static const char* const kNames[] = {"Kill", "PowerCut", "PowerCutWithFlushedJournal"};
  return kNames[static_cast<size_t>(crash)];
}
void PrintTo(CrashKind crash, std::ostream* out) { *out << name_of(crash); }

class ProgramCrashEnumerationTest : public RunTest {
 protected:
  void SetUp() override {
    ::setenv("TEST_TMPDIR", quick_folder().c_str(), 1);
    RunTest::SetUp();
    work_dir_ = path("work");
    base_ = path("base");
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
  }
  void TearDown() override {
    disk_.reset();
    RunTest::TearDown();
  }

  // Sets up the working folder, on its own loop disk for power cuts, with the contents of `base_`.
  void prepare_work_dir(CrashKind crash) {
    if (crash == CrashKind::kKill) {
      if (fs::exists(base_)) copy_tree(base_, work_dir_ + "/run");
      return;
    }
    LoopDisk::format(path("image"));
    disk_ = std::make_unique<LoopDisk>(path("image"), work_dir_);
    if (fs::exists(base_)) copy_tree(base_, work_dir_ + "/run");
    disk_->power_on();  // so that the copied files are on the disk
  }
  void clear_work_dir() {
    disk_.reset();
    fs::remove_all(work_dir_);
    fs::create_directory(work_dir_);
    for (const char* const log : {"crashed.out", "stokerd.out", "stoker-eval.out"})
      fs::remove(path(log));
  }

  // Changes of the run directory except the log, which no decision depends on.
  bool is_counted(const FileCall& call) const {
    return call.changes && !call.path.starts_with(work_dir_ + "/run/logs/");
  }

  size_t count_changes_of(const std::vector<std::string>& command) {
    clear_work_dir();
    prepare_work_dir(CrashKind::kKill);
    size_t changes = 0;
    const auto end =
        trace(command, path("crashed.out"), work_dir_ + "/run", [&](const FileCall& call) {
          changes += is_counted(call);
          return Verdict::kContinue;
        });
    EXPECT_EQ(end.code, 0) << log_of("crashed");
    return changes;
  }

  // Kills `command` before change number `change`. Its output until then is in crashed.out.
  std::string crash_at(const std::vector<std::string>& command, CrashKind crash, size_t change) {
    clear_work_dir();
    prepare_work_dir(crash);
    size_t seen = 0;
    std::string location = "after the end";
    const auto simulate_power_loss = [&] {
      output_before_crash_ = log_of("crashed");
      if (crash == CrashKind::kPowerCut)
        disk_->simulate_power_loss(LoopDisk::PowerLoss::kNothingFlushed);
      if (crash == CrashKind::kPowerCutWithFlushedJournal)
        disk_->simulate_power_loss(LoopDisk::PowerLoss::kJournalFlushed);
    };
    const auto end =
        trace(command, path("crashed.out"), work_dir_ + "/run", [&](const FileCall& call) {
          if (!is_counted(call) || ++seen != change) return Verdict::kContinue;
          location = to_string(call);
          simulate_power_loss();
          return Verdict::kKill;
        });
    if (end.signal == 0) simulate_power_loss();
    if (disk_) disk_->power_on();
    return location;
  }

  template <typename Check>
  void crash_everywhere(const std::vector<std::string>& command, CrashKind crash,
                        const Check& check) {
    if (crash != CrashKind::kKill)
      if (const auto why = LoopDisk::unavailable_reason()) GTEST_SKIP() << *why;
    const size_t changes = count_changes_of(command);
    ASSERT_GT(changes, 20u);
    const size_t stride = is_full_test() ? 1 : changes / 6 + 1;
    size_t crashes = 0;
    for (size_t change = 1; change <= changes; change += stride, ++crashes) {
      SCOPED_TRACE(crash_at(command, crash, change));
      check();
      if (HasFailure()) return;
    }
    std::cout << "enumerated: " << crashes << " of " << changes << " crashes, " << counts()
              << "0 failures\n";
  }
  // For the summary line: what the checks have counted, each followed by a comma.
  virtual std::string counts() const { return ""; }

  std::string work_dir_;
  std::string base_;                 // initial contents of the run; need not exist
  std::string output_before_crash_;  // output of the killed program
  std::unique_ptr<LoopDisk> disk_;
};

// ---- stokerd

class DaemonCrashEnumerationTest : public ProgramCrashEnumerationTest,
                                   public ::testing::WithParamInterface<CrashKind> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ProgramCrashEnumerationTest::SetUp());
    if (IsSkipped()) return;
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, path("uninterrupted"), options_).code, 0);
    uninterrupted_ = deterministic_results(path("uninterrupted"));
  }

  std::vector<std::string> command() const {
    return joined({program("stokerd"), "--config", config_, "--run-dir", work_dir_ + "/run"},
                  options_);
  }

  // The results of a run that do not depend on time: the tensors of the last checkpoint, and the
  // records.
  static std::string deterministic_results(const std::string& run) {
    std::string results;
    for (const char* const part : {"model", "optimizer", "trainer_state"}) {
      const std::string bytes =
          text_of(run + "/checkpoints/step-000000040/" + part + ".safetensors");
      EXPECT_FALSE(bytes.empty()) << run << " has no " << part << " at the last step";
      results += sha256_hex(bytes);
    }
    for (const std::string& row : deterministic_records(run)) results += "\n" + row;
    return results;
  }

  static std::vector<uint64_t> visible_steps(const std::string& run) {
    std::vector<uint64_t> steps;
    for (const std::string& name : checkpoints(run))
      steps.push_back(*checkpoint::CheckpointStore::parse_checkpoint_name(name));
    return steps;
  }

  std::string counts() const override {
    return std::to_string(resumed_) + " restarts resumed from a checkpoint, ";
  }

  void check() {
    const std::string run = work_dir_ + "/run";
    for (const std::string& name : checkpoints(run)) {
      const auto opened = checkpoint::CheckpointStore::open_verified(run + "/checkpoints/" + name);
      EXPECT_TRUE(opened.ok()) << "invalid: " << opened.status().to_string();
    }
    const std::string output = output_before_base_ + output_before_crash_;
    EXPECT_TRUE(none_lost(acknowledged_steps(output), visible_steps(run), kKeepLast)) << output;
    const uint64_t newest = newest_step(run);
    ASSERT_EQ(train(config_, run, options_).code, 0) << log_of("stokerd");
    const auto start_step = start_step_of(log_of("stokerd"));
    ASSERT_TRUE(start_step.has_value()) << log_of("stokerd");
    EXPECT_EQ(*start_step, newest) << "the restart did not resume from the newest checkpoint";
    resumed_ += *start_step > 0;
    EXPECT_TRUE(
        none_lost(acknowledged_steps(output + log_of("stokerd")), visible_steps(run), kKeepLast));
    EXPECT_EQ(deterministic_results(run), uninterrupted_);
    for (const auto& entry : fs::recursive_directory_iterator(run))
      EXPECT_FALSE(entry.path().filename().string().starts_with('.'))
          << "leftover: " << entry.path();
  }

  static constexpr size_t kKeepLast = 2;
  const std::vector<std::string> options_{
      "--set", "train.max_steps=40",       "--set", "checkpoint.save_every_steps=10",
      "--set", "checkpoint.keep_last=2",   "--set", "control.socket=null",
      "--set", "scheduler.name=constant",  "--set", "scheduler.min_lr=",
      "--set", "metrics.log_every_steps=5"};
  std::string config_;
  std::string uninterrupted_;
  std::string output_before_base_;  // output of the processes that made the base run
  size_t resumed_ = 0;              // restarts that resumed from a checkpoint
};

TEST_P(DaemonCrashEnumerationTest, RecoversNewRunFromCrashAtAnyCall) {
  crash_everywhere(command(), GetParam(), [this] { check(); });
  if (IsSkipped()) return;
  EXPECT_GT(resumed_, 0u) << "no crash fell between a checkpoint and the end";
}

// The base run crashed while it deleted the first of three checkpoints. Each of them was the last
// of its run, so it was saved regardless of how busy the writer was.
TEST_P(DaemonCrashEnumerationTest, RecoversResumedRunFromCrashAtAnyCall) {
  clear_work_dir();
  for (const char* const steps : {"train.max_steps=10", "train.max_steps=20"})
    ASSERT_EQ(train(config_, work_dir_ + "/run", joined(options_, {"--set", steps})).code, 0);
  const auto end = trace(joined(command(), {"--set", "train.max_steps=30"}), path("crashed.out"),
                         work_dir_ + "/run", [](const FileCall& call) {
                           const bool is_in_trash = call.path.find("/.trash-") != std::string::npos;
                           return is_in_trash && call.changes ? Verdict::kKill : Verdict::kContinue;
                         });
  ASSERT_NE(end.signal, 0) << log_of("crashed");
  output_before_base_ = log_of("stokerd") + log_of("crashed");
  ASSERT_THAT(acknowledged_steps(output_before_base_), ::testing::IsSupersetOf({10u, 20u}));
  fs::rename(work_dir_ + "/run", base_);
  size_t restarts = 0;
  crash_everywhere(command(), GetParam(), [this, &restarts] {
    ++restarts;
    check();
  });
  EXPECT_EQ(resumed_, restarts) << "a restart began a new run";
}

// ---- stoker-eval

class EvaluatorCrashEnumerationTest : public ProgramCrashEnumerationTest,
                                      public ::testing::WithParamInterface<CrashKind> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ProgramCrashEnumerationTest::SetUp());
    if (IsSkipped()) return;
    const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
    // Each checkpoint is the last of its run, so it is saved regardless of how busy the writer is.
    for (const char* const steps :
         {"train.max_steps=10", "train.max_steps=20", "train.max_steps=30"})
      ASSERT_EQ(train(config, base_,
                      {"--set", steps, "--set", "checkpoint.save_every_steps=null", "--set",
                       "scheduler.name=constant", "--set", "scheduler.min_lr="})
                    .code,
                0);
    ASSERT_THAT(checkpoints(base_), ::testing::SizeIs(3));
    copy_tree(base_, path("uninterrupted"));
    ASSERT_EQ(evaluate(path("uninterrupted")), 0);
    uninterrupted_ = deterministic_results(path("uninterrupted"));
  }

  int evaluate(const std::string& run) const {
    const auto exit = evaluator(run, {"--once"}).wait(std::chrono::seconds(60));
    return exit ? exit->code : -1;
  }

  // Results, best checkpoint, outcomes and records, without fields that depend on time and without
  // attempts, which include crashes.
  static std::string deterministic_results(const std::string& run) {
    std::string results;
    const auto without = [](std::string line, const std::string& field) {
      const size_t from = line.find(",\"" + field + "\":");
      return from == std::string::npos ? line : line.substr(0, from);
    };
    for (const char* const file :
         {"eval/step-000000010.json", "eval/step-000000020.json", "eval/step-000000030.json",
          "eval/best.json", "eval/outcomes.jsonl", "metrics/eval.jsonl"}) {
      std::istringstream lines(text_of(run + "/" + file));
      results += std::string(file) + "\n";
      for (std::string line; std::getline(lines, line);)
        results +=
            without(without(without(line, "wall_time"), "duration_seconds"), "attempts") + "\n";
    }
    return results;
  }

  void check() {
    const std::string run = work_dir_ + "/run";
    ASSERT_EQ(evaluate(run), 0) << log_of("stoker-eval");
    EXPECT_EQ(deterministic_results(run), uninterrupted_) << log_of("stoker-eval");
  }

  std::string uninterrupted_;
};

TEST_P(EvaluatorCrashEnumerationTest, RecordsEachCheckpointOnceAfterCrashAtAnyCall) {
  crash_everywhere({program("stoker-eval"), "--run-dir", work_dir_ + "/run", "--once"}, GetParam(),
                   [this] { check(); });
}

const auto kCrashKinds = ::testing::Values(CrashKind::kKill, CrashKind::kPowerCut,
                                           CrashKind::kPowerCutWithFlushedJournal);
INSTANTIATE_TEST_SUITE_P(Crashes, DaemonCrashEnumerationTest, kCrashKinds,
                         [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(Crashes, EvaluatorCrashEnumerationTest, kCrashKinds,
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace stoker::test
