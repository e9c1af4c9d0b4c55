#include "tests/support/python_script.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {

std::optional<ScriptResult> try_run_python(const std::string& script,
                                           const std::vector<std::string>& arguments) {
  constexpr int kMissing = 77, kNoSuchProgram = 127;
  const TemporaryDirectory scratch;
  const char* const environment_python = std::getenv("STOKER_PYTHON");
  const std::string python =
      environment_python != nullptr && *environment_python != '\0' ? environment_python : "python3";
  std::string command = "'" + python + "' -B '" + script + "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  std::FILE* const pipe = ::popen((command + " 2>'" + (scratch / "errors") + "'").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  ScriptResult result;
  char chunk[4096];
  for (size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;)
    result.out.append(chunk, got);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (result.code == kMissing || result.code == kNoSuchProgram) return std::nullopt;
  if (auto errors = read_file(scratch / "errors", 1 << 20); errors.ok()) result.err = *errors;
  return result;
}

}  // namespace stoker::test
