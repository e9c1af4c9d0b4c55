#include "evaluator/command_line.h"
#include "evaluator/evaluator_app.h"
#include "shared/base/clock.h"
#include "shared/model/host_allocator.h"

int main(int argc, char** argv) {
  stoker::model::install_host_allocator();
  const auto parsed =
      stoker::evaluator::parse_command_line(argc, argv);  // prints --help and usage errors
  if (!parsed.command) return static_cast<int>(parsed.exit_code);
  return static_cast<int>(
      stoker::evaluator::EvaluatorApp(*parsed.command, stoker::system_clock()).run());
}
