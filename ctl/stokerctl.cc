#include "ctl/stokerctl.h"

#include <chrono>
#include <ostream>
#include <vector>

#include "ctl/command_line.h"
#include "ctl/daemon_commands.h"
#include "ctl/directory_commands.h"
#include "ctl/evaluate_command.h"
#include "ctl/install_service.h"
#include "ctl/run_locator.h"
#include "ctl/show_batch.h"
#include "ctl/subscription_commands.h"
#include "ctl/terminal.h"
#include "ctl/top.h"
#include "shared/base/directory_root.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;

// Runs a command on a run directory, whose files can be those of another user: calls `show` with the layout
// of the run. `links`: those that may lead to it.
template <typename Show>
ExitCode run_on_directory(const CommandLine& command, const Console& console, const Show& show,
                          PathLinks links = PathLinks::kOfTrustedUsers) {
  const auto layout = locate_run(command.run_dir);
  if (!layout.ok()) return console.fail(layout.status(), exit_code_for(layout.status()));
  const auto root = DirectoryRoot::open(layout->root(), links);
  if (!root.ok()) return console.fail(root.status(), exit_code_for(root.status()));
  return show(*layout, command, console);
}

// The same for commands that show several runs.
template <typename Show>
ExitCode run_on_directories(const CommandLine& command, const Console& console, const Show& show) {
  std::vector<run::RunLayout> layouts;
  std::vector<DirectoryRoot> roots;
  for (const std::string& dir :
       command.runs.empty() ? std::vector{command.run_dir} : command.runs) {
    auto layout = locate_run(dir);
    if (!layout.ok()) return console.fail(layout.status(), exit_code_for(layout.status()));
    auto root = DirectoryRoot::open(layout->root(), PathLinks::kOfAnyUser);
    if (!root.ok()) return console.fail(root.status(), exit_code_for(root.status()));
    layouts.push_back(*std::move(layout));
    roots.push_back(*std::move(root));
  }
  return show(layouts, command, console);
}

ExitCode run(const CommandLine& command, const Console& console) {
  switch (command.action) {
    case Action::kStatus:
      return show_status(command, console);
    case Action::kWatch:
      return watch_status(command, console, 1s);
    case Action::kTop:
      return show_top(command, console);
    case Action::kThreads:
      return show_threads(command, console);
    case Action::kSettings:
      return show_settings(command, console);
    case Action::kCommand:
      return run_command(command, console);
    case Action::kEvents:
      return follow_events(command, console);
    case Action::kReload:
      return reload_configuration(command, console);
    case Action::kEvaluate:
      if (!command.socket.empty()) return evaluate_remotely(command, console);
      return run_on_directory(command, console,
                              [](const auto& layout, const auto& options, const auto& out) {
                                return evaluate(layout, options, out, 200ms);
                              });
    case Action::kList:
      return run_on_directory(command, console, show_list, PathLinks::kOfAnyUser);
    case Action::kVerify:
      return run_on_directory(command, console, show_verification, PathLinks::kOfAnyUser);
    case Action::kDiff:
      return run_on_directory(command, console, show_diff, PathLinks::kOfAnyUser);
    case Action::kExport:
      return run_on_directory(command, console, write_export);
    case Action::kClassReport:
      return run_on_directory(command, console, show_classes, PathLinks::kOfAnyUser);
    case Action::kShowBatch:
      if (!command.socket.empty()) return show_remote_batch(command, console);
      return run_on_directory(command, console, show_batch);
    case Action::kLogs:
      if (!command.socket.empty()) return show_remote_logs(command, console);
      return run_on_directory(command, console,
                              [](const auto& layout, const auto& options, const auto& out) {
                                return show_logs(layout, options, out, 200ms);
                              });
    case Action::kReport:
      return run_on_directories(command, console, show_report);
    case Action::kPlot:
      return run_on_directories(command, console, show_plot);
    case Action::kRuns:
      return show_runs(command, console);
    case Action::kCandidates:
      return run_on_directory(command, console, show_candidates);
    case Action::kInstallService:
      return install_service(command, console);
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
