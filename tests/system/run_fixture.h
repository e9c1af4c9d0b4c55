// RunTest: a run directory in a temporary folder, and the programs of stoker to work on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/run/eval_result.h"
#include "tests/system/process.h"

namespace stoker::test {

// Its path in the build.
std::string program(const std::string& name);
std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& more);

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A small MLP on made-up numbers: a step takes well under a millisecond, a run a second or two.
  std::string small_config(const std::string& more = "") const;
  // A small GPT on a text that is written into the folder.
  std::string text_config(const std::string& more = "") const;
  std::string write_config(const std::string& yaml, const std::string& name = "config.yaml") const;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string run_dir(const std::string& name = "run") const { return path(name); }

  Process trainer(const std::string& config, const std::string& run,
                  const std::vector<std::string>& more = {}) const;
  Process evaluator(const std::string& run, const std::vector<std::string>& more) const;
  Process ctl(const std::string& run, const std::vector<std::string>& more,
              const std::string& log) const;
  // Starts stokerd and waits for its end; fails the test when it does not end in time.
  Exit train(const std::string& config, const std::string& run,
             const std::vector<std::string>& more = {}) const;

  static std::string text_of(const std::string& file);
  std::string log_of(const std::string& program) const { return text_of(path(program + ".out")); }
  static std::vector<std::string> checkpoints(const std::string& run);  // names, oldest first
  static uint64_t newest_step(const std::string& run);                  // 0: none
  // Of the newest checkpoint and the first set; fails the test where there is no such result.
  static run::DatasetResult newest_result(const std::string& run);
  static std::string model_sha256(const std::string& run, uint64_t step);
  // The rows of train.jsonl without the fields that a clock decided.
  static std::vector<std::string> decided_rows(const std::string& run);
  static std::vector<pid_t> children_of(pid_t parent, const std::string& program);

  std::string folder_;
};

}  // namespace stoker::test
