// What the log of this process has while something runs, and how often a text is in it.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "shared/base/log.h"

namespace stoker::test {

// The lines of level info and above that are logged meanwhile. Sets that level, because other tests of the
// process may have set another one.
template <typename Action>
std::string log_of(const Action& action) {
  set_log_level(LogLevel::kInfo);
  flush_log();  // what was logged before
  testing::internal::CaptureStderr();
  action();
  flush_log();
  return testing::internal::GetCapturedStderr();
}

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace stoker::test
