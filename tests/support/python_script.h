// python_script: runs a script of the tests with the Python that STOKER_PYTHON names (else python3).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stoker::test {

struct ScriptAnswer {
  int code = -1;
  std::string out;
  std::string err;
};

// nullopt: there is no Python, or the script ended with 77: it lacks a package.
std::optional<ScriptAnswer> try_run_python(const std::string& script,
                                           const std::vector<std::string>& arguments);

}  // namespace stoker::test
