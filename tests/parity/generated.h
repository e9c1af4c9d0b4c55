// generated: what a script has generated for the tests to compare with, in place of the golden files.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace stoker::parity {

// The folder or file that a variable of the environment names; null without it. Printed once: steps.py requires
// it of each variable that it sets.
inline const char* generated(const char* variable) {
  const char* const path = std::getenv(variable);
  static std::set<std::string> printed;
  if (path != nullptr && printed.insert(variable).second)
    std::printf("compares with %s\n", variable);
  return path;
}

}  // namespace stoker::parity
