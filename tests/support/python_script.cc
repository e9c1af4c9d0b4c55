#include "tests/support/python_script.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {

std::optional<ScriptAnswer> try_run_python(const std::string& script,
                                           const std::vector<std::string>& arguments) {
  constexpr int kMissing = 77, kNoSuchProgram = 127;
  const TemporaryDirectory scratch;
  const char* const chosen = std::getenv("STOKER_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  std::string command = "'" + python + "' -B '" + script + "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  std::FILE* const pipe = ::popen((command + " 2>'" + (scratch / "errors") + "'").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  ScriptAnswer answer;
  char part[4096];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof part, pipe)) > 0;)
    answer.out.append(part, got);
  const int status = ::pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (answer.code == kMissing || answer.code == kNoSuchProgram) return std::nullopt;
  if (auto errors = read_file(scratch / "errors", 1 << 20); errors.ok()) answer.err = *errors;
  return answer;
}

}  // namespace stoker::test
