// is_full_test(): whether scripts/fault_tests.sh runs the test, with every fault or for longer.
#pragma once

#include <cstdlib>
#include <string_view>

namespace stoker::test {

inline bool is_full_test() {
  const char* const mode = std::getenv("STOKER_FAULT_TESTS");
  return mode != nullptr && std::string_view(mode) == "full";
}

}  // namespace stoker::test
