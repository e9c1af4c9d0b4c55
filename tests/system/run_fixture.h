// RunTest: a run directory in a temporary folder and helpers to start the stoker programs on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/support/full_test.h"
#include "tests/system/kill_report.h"
#include "tests/system/process.h"

namespace stoker::test {

inline constexpr std::chrono::seconds kPatience{110};  // beyond every wait of a test that succeeds

// Path of a program in the build tree.
std::string program(const std::string& name);
std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& more);

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A small MLP on synthetic data: a step takes well under a millisecond, a run a second or two.
  std::string small_config(const std::string& more = "") const;
  // A small GPT on a text that is written to the folder.
  std::string text_config(const std::string& more = "") const;
  std::string write_config(const std::string& yaml, const std::string& name = "config.yaml") const;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string run_dir(const std::string& name = "run") const { return path(name); }

  Process trainer(const std::string& config, const std::string& run,
                  const std::vector<std::string>& more = {}) const;
  Process evaluator(const std::string& run, const std::vector<std::string>& more) const;
  Process ctl(const std::string& run, const std::vector<std::string>& more,
              const std::string& log) const;
  // Runs stokerd until it exits; fails the test on timeout.
  Exit train(const std::string& config, const std::string& run,
             const std::vector<std::string>& more = {}) const;

  // Fails the test if the file cannot be read, so that two missing files are not equal.
  static std::string text_of(const std::string& file);
  static std::string text_if_exists(const std::string& file);  // empty without it; for polling
  std::string log_of(const std::string& program) const { return text_of(path(program + ".out")); }
  // Waits until the program has logged the text. While it runs, its log can be later than what it
  // does: a thread of its own writes it.
  void expect_logged(const std::string& program, const std::string& text) const;
  static size_t count_of(const std::string& text, const std::string& part);
  // The exit code; -1: a signal has ended it, or it is still running after kPatience, which fails the
  // test.
  static int code_of(Process& process);
  static std::vector<std::string> checkpoints(const std::string& run);  // names, oldest first
  static uint64_t newest_step(const std::string& run);                  // 0: none
  static std::string newest_checkpoint(const std::string& run);         // its path
  // That the newest checkpoints have the same step and these same files.
  static void expect_same_checkpoint(const std::string& run, const std::string& other,
                                     const std::vector<std::string>& files);
  // Result of the newest checkpoint and the first dataset; fails the test if there is none.
  static run::DatasetResult newest_result(const std::string& run);
  static std::string model_sha256(const std::string& run, uint64_t step);
  // The records of train.jsonl without the fields that depend on time. Fails the test if there are
  // none.
  static std::vector<std::string> deterministic_records(const std::string& run);
  static size_t num_records(const std::string& run);           // 0 without the file; for polling
  static uint64_t newest_record_step(const std::string& run);  // 0: no complete record; for polling
  static std::vector<pid_t> children_of(pid_t parent, const std::string& program);

  // What a run has done so far. Runs are killed after progress, not after a time, so that the point
  // does not depend on the speed of the machine.
  struct Progress {
    size_t log_bytes = 0;  // output of stokerd
    size_t records = 0;
    uint64_t checkpoint = 0;  // step of the newest one
  };
  enum class KillPoint { kProcessStarted, kTrainingStarted, kRecordWritten, kCheckpointSaved };
  Progress progress_of(const std::string& run) const;
  static bool is_in_training(KillPoint point) { return point >= KillPoint::kRecordWritten; }
  // Waits until stokerd, started after `before`, has reached the point. Its exit, if it exits first.
  std::optional<Exit> wait_for(KillPoint point, Process& trainer, const std::string& run,
                               const Progress& before) const;
  // Reports the kill of a process that was started after `before`.
  KillReport report_kill_of(const std::string& run, const Progress& before,
                            uint64_t max_steps) const;
  // What stokerd has logged after `before`.
  std::string log_since(const Progress& before) const;

  std::string folder_;
};

}  // namespace stoker::test
