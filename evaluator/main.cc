#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "evaluator/command_line.h"
#include "evaluator/evaluator_app.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/descriptor_limit.h"
#include "shared/base/utf8.h"
#include "shared/model/host_allocator.h"

namespace {

stoker::ExitCode run(int argc, char** argv) {
  ::umask(::umask(0) | 0027);  // as stokerd
  stoker::raise_descriptor_limit();
  stoker::model::install_host_allocator();
  const auto parsed =
      stoker::evaluator::parse_command_line(argc, argv);  // prints --help and usage errors
  if (!parsed.command) return parsed.exit_code;
  return stoker::evaluator::EvaluatorApp(*parsed.command, stoker::system_clock()).run();
}

}  // namespace

// Ends as stokerd (daemon/app/main.cc).
int main(int argc, char** argv) {
  stoker::ExitCode code = stoker::ExitCode::kInternal;
  const stoker::Status thrown = stoker::catch_exceptions([&]() -> stoker::Status {
    code = run(argc, argv);
    return {};
  });
  if (!thrown.ok()) {
    std::fprintf(stderr, "stoker-eval: %s\n",
                 stoker::printable_lines(thrown.message(), "  ").c_str());
    code = stoker::exit_code_for(thrown);
  }
  std::fflush(nullptr);
  std::quick_exit(static_cast<int>(code));
}
