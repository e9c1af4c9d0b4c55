// Acknowledged checkpoints: those that stokerd has logged as saved. Retention may delete them,
// nothing else may lose them: no crash of the process that saved them, nor of a later one.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::test {

// Steps, in the order of the log.
std::vector<uint64_t> acknowledged_steps(std::string_view log);

// Every acknowledged checkpoint is visible, unless at least `keep_last` newer ones are: retention
// deletes no other. `acknowledged`: by all processes of the run; `visible`: steps of the checkpoints
// in the run directory.
::testing::AssertionResult none_lost(const std::vector<uint64_t>& acknowledged,
                                     const std::vector<uint64_t>& visible, size_t keep_last);

}  // namespace stoker::test
