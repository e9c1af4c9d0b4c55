// Runs a test script with the Python in STOKER_PYTHON, default python3.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stoker::test {

struct ScriptResult {
  int code = -1;
  std::string out;
  std::string err;
};

// nullopt: there is no Python, or the script exited with 77 because a package is missing.
std::optional<ScriptResult> try_run_python(const std::string& script,
                                           const std::vector<std::string>& arguments);

}  // namespace stoker::test
