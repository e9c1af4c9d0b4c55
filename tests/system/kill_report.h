// Kill reports: where in its training stokerd was killed, and whether a start resumed the run, from
// the log of the process and the files of the run. Tests with repeated kills use them to show that
// their kills fell into training and that their restarts resumed.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace stoker::test {

// start_step of the first "training started" in the log of a process; empty without one.
std::optional<uint64_t> start_step_of(std::string_view log);

struct KillReport {
  std::optional<uint64_t> start_step;  // empty: killed before training started
  bool is_in_training = false;         // killed after its first step and before the last one
};
// `log`: of the killed process only. `newest_step`: of the records and checkpoints that it has left.
KillReport report_kill(std::string_view log, uint64_t newest_step, uint64_t max_steps);

struct KillCounts {
  int kills = 0;
  int in_training = 0;
  int resumed = 0;  // starts that resumed from a checkpoint
};
// Example: "20 kills, 16 in training, 17 restarts resumed".
std::string to_string(const KillCounts& counts);

// Count a start or a kill. They fail if training did not start at `newest_checkpoint`, the step of
// the newest checkpoint at that time (0: none), or if the kill was not in training but should have
// been. An empty `start_step` counts as no start.
::testing::AssertionResult count_start(std::optional<uint64_t> start_step,
                                       uint64_t newest_checkpoint, KillCounts& counts);
::testing::AssertionResult count_kill(const KillReport& report, uint64_t newest_checkpoint,
                                      bool must_be_in_training, KillCounts& counts);

}  // namespace stoker::test
