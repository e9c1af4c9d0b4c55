#include "ctl/stokerctl.h"

#include <chrono>
#include <ostream>

#include "ctl/command_line.h"
#include "ctl/daemon_commands.h"
#include "ctl/directory_commands.h"
#include "ctl/run_locator.h"
#include "ctl/terminal.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;

// Runs a command that reads a run directory: calls `show` with the layout of the run.
template <typename Show>
ExitCode run_on_directory(const CommandLine& command, const Console& console, const Show& show) {
  const auto layout = locate_run(command.run_dir);
  if (!layout.ok()) return console.fail(layout.status(), exit_code_for(layout.status()));
  return show(*layout, command, console);
}

ExitCode run(const CommandLine& command, const Console& console) {
  switch (command.action) {
    case Action::kStatus:
      return show_status(command, console);
    case Action::kWatch:
      return watch_status(command, console, 1s);
    case Action::kThreads:
      return show_threads(command, console);
    case Action::kCommand:
      return run_command(command, console);
    case Action::kList:
      return run_on_directory(command, console, show_list);
    case Action::kVerify:
      return run_on_directory(command, console, show_verification);
    case Action::kDiff:
      return run_on_directory(command, console, show_diff);
    case Action::kExport:
      return run_on_directory(command, console, write_export);
    case Action::kClassReport:
      return run_on_directory(command, console, show_classes);
    case Action::kShowBatch:
      return run_on_directory(command, console, show_batch);
    case Action::kLogs:
      return run_on_directory(command, console,
                              [](const auto& layout, const auto& options, const auto& out) {
                                return show_logs(layout, options, out, 200ms);
                              });
    case Action::kReport:
      return run_on_directory(command, console,
                              [](const auto& layout, const auto&, const auto& out) {
                                return show_report(layout, out);
                              });
    case Action::kPlot:
      return run_on_directory(command, console, show_plot);
  }
  return ExitCode::kInternal;  // unreachable; all actions are handled above
}

}  // namespace

ExitCode run_stokerctl(int argc, const char* const* argv, const TextStyle& style, std::ostream& out,
                       std::ostream& err) {
  const auto parsed = parse_command_line(argc, argv, out, err);
  const Console console{.out = out, .err = err, .style = style};
  const ExitCode code = parsed.command ? run(*parsed.command, console) : parsed.exit_code;
  out.flush();
  if (!out.good())
    return console.fail(Status(StatusCode::kIoError, "cannot write the output"),
                        ExitCode::kIoError);
  return code;
}

}  // namespace stoker::ctl
