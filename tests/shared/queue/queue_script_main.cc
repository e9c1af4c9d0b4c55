// stoker-queue-script: runs the operations on queues that standard input describes, and writes
// their outcomes (docs/queues.md).
#include <iostream>
#include <string>

#include "tests/shared/queue/queue_script.h"

int main(int argc, char**) {
  if (argc > 1) {
    std::cerr << "usage: stoker-queue-script <SCRIPT; docs/queues.md describes the lines\n";
    return static_cast<int>(stoker::ExitCode::kUsage);
  }
  std::ios::sync_with_stdio(false);
  stoker::queue::QueueScript script(std::cout);
  stoker::Status status;
  for (std::string line; status.ok() && std::getline(std::cin, line);)
    status = script.run_line(line);
  if (status.ok()) status = script.finish();
  if (status.ok()) return static_cast<int>(stoker::ExitCode::kSuccess);
  std::cerr << "stoker-queue-script: " << status.message() << '\n';
  return static_cast<int>(stoker::ExitCode::kDataError);
}
