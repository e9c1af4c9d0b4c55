// stoker-stacks PID: prints the stacks of all threads of a process and of its child processes.
//
// stokerd starts it when its watchdog expires, because a process cannot trace itself; it can be used by
// hand, too. It changes nothing in the processes and stops them only while it reads. What could not be
// had is a line that starts with "note: ".
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <iostream>
#include <set>
#include <string>

#include "daemon/stacks/stack_reader.h"
#include "daemon/stacks/traced_process.h"

namespace {

using namespace std::chrono_literals;
using stoker::stacks::StackReader;
using stoker::stacks::TracedProcess;
using stoker::stacks::TracedThread;

constexpr auto kStopTimeout = 2s;
constexpr int kUsageError = 64;
constexpr int kNotFound = 66;

// False: there is no such process.
bool print_process(pid_t pid) {
  const std::string title =
      "process " + std::to_string(pid) + " (" + stoker::stacks::process_name(pid) + ")";
  const TracedProcess process(pid, kStopTimeout);
  if (process.threads().empty()) {
    std::cout << "note: " << title << " has ended" << std::endl;
    return false;
  }
  const StackReader reader(process);
  std::cout << title << ", threads: " << process.threads().size() << '\n';
  std::set<std::string> noted;
  const auto note = [&](const std::string& problem) {
    if (noted.insert(problem).second)
      std::cout << "note: " << title << ": stacks incomplete: " << problem << '\n';
  };
  for (const TracedThread& thread : process.threads()) {
    std::cout << "\nthread " << thread.tid << " " << thread.name << ", " << thread.state;
    if (!thread.kernel_wait.empty()) std::cout << ", in the kernel at " << thread.kernel_wait;
    std::cout << '\n';
    if (!thread.is_stopped()) {
      note(thread.problem);
    } else if (!reader.problem().empty()) {
      note(reader.problem());
    } else {
      size_t number = 0;
      for (const std::string& frame : reader.frames(thread.tid))
        std::cout << "  #" << number++ << " " << frame << '\n';
    }
  }
  std::cout << std::endl;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc == 2 ? argv[1] : "";
  if (argument == "--help") {
    std::cout << "Usage: stoker-stacks PID\n\nPrints the stacks of all threads of a process and of "
                 "its child processes, which stop while they are read.\n";
    return 0;
  }
  pid_t pid = 0;
  const char* const end = argument.data() + argument.size();
  const auto [rest, error] = std::from_chars(argument.data(), end, pid);
  if (error != std::errc() || rest != end || pid <= 0) {
    std::cerr << "Usage: stoker-stacks PID\n";
    return kUsageError;
  }
  // First, while its threads and processes are as they were.
  const auto children = stoker::stacks::child_processes(pid);
  if (!print_process(pid)) return kNotFound;
  for (const pid_t child : children)
    if (child != ::getpid()) print_process(child);
  return 0;
}
