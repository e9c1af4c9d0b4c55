#include "ctl/stokerctl.h"

#include <chrono>
#include <ostream>

#include "ctl/command_line.h"
#include "ctl/daemon_commands.h"
#include "ctl/directory_commands.h"
#include "ctl/inspect_command.h"
#include "ctl/run_locator.h"
#include "ctl/terminal.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;

ExitCode run_on_directory(const CommandLine& command, const Console& console) {
  const auto layout = locate_run(command.run_dir);
  if (!layout.ok()) return console.fail(layout.status(), exit_code_for(layout.status()));
  switch (command.action) {
    case Action::kList:
      return show_list(*layout, command, console);
    case Action::kVerify:
      return show_verification(*layout, command, console);
    case Action::kDiff:
      return show_diff(*layout, command, console);
    case Action::kExport:
      return write_export(*layout, command, console);
    case Action::kClasses:
      return show_classes(*layout, command, console);
    case Action::kExplain:
      return show_batch(*layout, command, console);
    case Action::kLogs:
      return show_logs(*layout, command, console, 200ms);
    case Action::kReport:
      return show_report(*layout, console);
    default:
      return show_plot(*layout, command, console);
  }
}

ExitCode run(const CommandLine& command, const Console& console) {
  switch (command.action) {
    case Action::kStatus:
      return show_status(command, console);
    case Action::kWatch:
      return watch_status(command, console, 1s);
    case Action::kPause:
    case Action::kResume:
    case Action::kCheckpoint:
    case Action::kStop:
    case Action::kSet:
      return control_training(command, console);
    case Action::kProfile:
      return record_profile(command, console);
    case Action::kInspect:
      return follow_inspection(command, console, 100ms);
    default:
      return run_on_directory(command, console);
  }
}

}  // namespace

ExitCode run_stokerctl(int argc, const char* const* argv, const TextStyle& style, std::ostream& out,
                       std::ostream& err) {
  const auto parsed = parse_command_line(argc, argv, out, err);
  const Console console{.out = out, .err = err, .style = style};
  const ExitCode code = parsed.command ? run(*parsed.command, console) : parsed.exit_code;
  out.flush();
  if (!out.good())
    return console.fail(Status(StatusCode::kIoError, "cannot write the answer"),
                        ExitCode::kIoError);
  return code;
}

}  // namespace stoker::ctl
