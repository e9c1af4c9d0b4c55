#include "daemon/daemon_app/command_line.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "daemon/daemon_app/version.h"

namespace stoker::daemon_app {
namespace {

constexpr const char* kFooter = R"(Examples:
  stokerd --config my.yaml                          train; goes on from the newest checkpoint where there is one
  stokerd --config my.yaml --set train.steps=10     the same, with one setting changed
  stokerd --config my.yaml --check                  print the resolved configuration, or every mistake in it
  stokerd --config my.yaml --fresh                  start over; what is there is moved aside, never deleted

While it trains:
  stokerctl --run-dir DIR status                    what it is doing (pause, resume, checkpoint, stop, set lr …)
  stoker-eval --run-dir DIR --follow                validate each checkpoint in a process of its own
  SIGTERM, Ctrl-C: finish the step, save, exit 0 (a second one: leave at once)   SIGUSR1: save now   SIGHUP: reload

Exit codes: 0 done or stopped on request, 64 usage, 65 no checkpoint is intact, data are damaged or the loss is no
number, 70 internal, 71 out of memory, 72 device lost, 74 I/O, 75 the run directory is held by another process,
78 configuration, 93 starts without progress, 143 left at once.)";

void add_allowances(CLI::App& app, Allowed& allowed, CLI::Option* fresh) {
  const auto allow = [&](Change change, const std::string& what) {
    app.add_flag(std::string(flag_of(change)), allowed[change],
                 "Go on with " + what + " than the checkpoint was saved with")
        ->group("Going on with a run that has changed (each costs a guarantee: docs/operations.md)")
        ->excludes(fresh);
  };
  allow(Change::kModel, "another model, task or optimizer");
  allow(Change::kData, "other data, or another order of samples,");
  allow(Change::kBatch, "another batch size");
  allow(Change::kWorldSize, "another number of trainers");
}

void add_options(CLI::App& app, CommandLine& command) {
  app.add_option("--config", command.config,
                 "Configuration file (config/stoker.yaml is the manual)")
      ->required()
      ->type_name("FILE");
  app.add_option("--run-dir", command.run_dir,
                 "Run directory, instead of run.dir of the configuration")
      ->type_name("DIR");
  app.add_option("--set", command.overrides,
                 "Change one setting: --set train.steps=10 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--check", command.check,
               "Read, check and print the resolved configuration, then exit");
  auto* const fresh =
      app.add_flag("--fresh", command.fresh, "Start over in a run directory that holds a run");
  app.add_option("--resume", command.resume, "Go on from this checkpoint instead of the newest")
      ->type_name("CHECKPOINT")
      ->excludes(fresh);
  add_allowances(app, command.allowed, fresh);
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine command;
  CLI::App app{"stokerd trains a model from a configuration, as a service.", "stokerd"};
  app.footer(kFooter);
  app.set_version_flag("--version", version_text());
  add_options(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& answered) {  // --help, --version
    app.exit(answered);
    return {std::nullopt, ExitCode::kDone};
  } catch (const CLI::ParseError& mistake) {
    std::cerr << "stokerd: " << mistake.what() << "; try stokerd --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
  return {command, ExitCode::kDone};
}

}  // namespace stoker::daemon_app
