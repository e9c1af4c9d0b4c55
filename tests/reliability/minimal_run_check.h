// bare runs as a test starts them, and what must be true of their directories whenever they died.
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

inline constexpr uint64_t kBareSteps = 25;
inline constexpr uint64_t kBareSaveEvery = 5;

TraceEnd run_minimal_run(const std::string& run_dir, const std::string& output,
                         const std::function<Verdict(const FileCall&)>& check);

// The newest checkpoint that a run has reported as saved in `output`; 0: none.
uint64_t newest_acknowledged(const std::string& output);
bool said(const std::string& output, const std::string& words);
uint64_t newest_visible(const std::string& run_dir);  // 0: none

// Whatever is visible is whole and right, and what was acknowledged last is among it.
::testing::AssertionResult is_sound(const std::string& run_dir, uint64_t acknowledged);

// The next start removes what the death left, and the run ends with the checkpoints and the rows of
// one that was never interrupted.
::testing::AssertionResult goes_on_to_the_same_end(const std::string& run_dir,
                                                   const std::string& output);

// A run that died in the middle of retention, in its fourth checkpoint's tensors, in a row and in a
// small file: all that a start may have to clear away. At step 15 of 25.
void make_run_with_leftovers(const std::string& run_dir, const std::string& output);

}  // namespace stoker::test
