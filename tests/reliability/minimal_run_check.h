// Starts minimal runs and checks their run directories after a crash at any point.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reliability/tracer.h"

namespace stoker::test {

inline constexpr uint64_t kMinimalRunSteps = 25;
inline constexpr uint64_t kMinimalRunSaveEvery = 5;

TraceEnd run_minimal_run(const std::string& run_dir, const std::string& output,
                         const std::function<Verdict(const FileCall&)>& check);

// The newest checkpoint that a run has reported as saved in `output`; 0: none.
uint64_t newest_saved(const std::string& output);
bool said(const std::string& output, const std::string& words);
uint64_t newest_visible(const std::string& run_dir);  // 0: none

std::string find_leftovers(const std::string& run_dir);  // of crashes; empty: none

// Every visible checkpoint is complete and correct, and the last acknowledged one is among them.
::testing::AssertionResult all_checkpoints_valid(const std::string& run_dir, uint64_t acknowledged);

// The next start removes the leftovers of the crash, and the run ends with the checkpoints and
// records of an uninterrupted one.
::testing::AssertionResult resumes_to_same_result(const std::string& run_dir,
                                                  const std::string& output);

// Creates a run at step 15 of 25 with everything that a start might have to clean up: it crashed
// during retention, during the tensors of its fourth checkpoint, during a record and during a small
// file.
void make_run_with_leftovers(const std::string& run_dir, const std::string& output);

}  // namespace stoker::test
