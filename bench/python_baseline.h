// PythonBaseline: a Python process that does the same work with another library, on request.
//
// Format:    it prints a number when it is ready, then a number for each line that it receives.
// Threads:   one at a time.
// Blocking:  start() until the script is ready; ask() for as long as the work takes.
// Ownership: the process exits when its standard input closes, that is with this object or this
//            program.
// Errors:    start(): kNotFound: Python cannot be started or the script fails (with its reason on
//            standard error). ask(): kClosed: the process has exited.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::bench {

class PythonBaseline {
 public:
  // Runs bench/`script`.
  static Result<std::shared_ptr<PythonBaseline>> start(const std::string& python,
                                                       const std::string& script,
                                                       const std::vector<std::string>& arguments);
  ~PythonBaseline();
  PythonBaseline(const PythonBaseline&) = delete;
  PythonBaseline& operator=(const PythonBaseline&) = delete;

  double greeting() const { return greeting_; }  // the first number, printed when ready
  Result<double> request(std::string_view line);

 private:
  PythonBaseline(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  Result<double> read_number();

  pid_t pid_;
  UniqueFd socket_;
  double greeting_ = 0;
};

// Null if the baseline is unavailable, which is printed to standard error:
// "<benchmark>: no baseline: <why>".
std::shared_ptr<PythonBaseline> find_python_baseline(const std::string& benchmark,
                                                     const std::string& python,
                                                     const std::string& script,
                                                     const std::vector<std::string>& arguments);
// The value of STOKER_PYTHON.
std::optional<std::string> find_named_python();

}  // namespace stoker::bench
