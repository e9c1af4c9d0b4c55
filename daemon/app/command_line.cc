#include "daemon/app/command_line.h"

#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "daemon/app/version.h"
#include "shared/base/cli_documents.h"
#include "shared/base/cli_options.h"
#include "shared/base/utf8.h"
#include "shared/config/reference.h"

namespace stoker::app {
namespace {

constexpr const char* kFooter = R"(Examples:
  stokerd --config my.yaml                          train; resume from the newest checkpoint if there is one
  stokerd --config my.yaml --set train.max_steps=10     the same, with one key overridden
  stokerd --config my.yaml --check-config           print the resolved configuration, or every error in it
  stokerd --config my.yaml --check-data             open all datasets, print what they contain, or every error
  stokerd --config my.yaml --fresh                  start a new run; the existing one is archived, never deleted

While it trains:
  stokerctl --run-dir DIR status                    show the training status (pause, resume, checkpoint, stop, set …)
  stoker-eval --run-dir DIR --follow                evaluate each checkpoint in a separate process
  SIGTERM, Ctrl-C                                   finish the step, save, exit 0 (a second one: exit immediately)
  SIGUSR1                                           save now
  SIGHUP                                            reload the configuration

Exit codes: 0 finished or stopped, 64 usage error, 65 data error (no valid checkpoint, corrupt data, non-finite loss),
70 internal error, 71 out of memory, 72 device lost, 73 another rank of the group is lost, 74 I/O error,
75 run directory locked, 78 configuration error, 93 no progress after repeated restarts, 143 forced exit.)";

void add_allowances(CLI::App& app, AllowedChanges& allowed, CLI::Option* fresh) {
  const auto allow = [&](ChangeKind change, const std::string& what) {
    app.add_flag(std::string(allow_flag(change)), allowed[change],
                 "Resume although the " + what + " differs from the checkpoint")
        ->group("Resuming with changes (each waives a guarantee: docs/operations.md)")
        ->excludes(fresh);
  };
  allow(ChangeKind::kModel, "model");
  allow(ChangeKind::kData, "data");
  allow(ChangeKind::kBatch, "batch size");
  allow(ChangeKind::kWorldSize, "world size");
}

void add_cluster_options(CLI::App& app, CommandLine& command) {
  const char* const group =
      "Parameter servers (docs/distributed.md); or the section cluster, or TF_CONFIG";
  app.add_option("--ps_hosts", command.cluster.ps_hosts, "Addresses of the parameter servers")
      ->type_name("HOST:PORT,…")
      ->group(group);
  app.add_option("--worker_hosts", command.cluster.worker_hosts,
                 "Addresses of the workers; the first one is the chief")
      ->type_name("HOST:PORT,…")
      ->group(group);
  app.add_option("--job_name,--job", command.cluster.job_name, "Job of this process")
      ->type_name("ps|worker")
      ->group(group);
  app.add_option("--task_index,--task", command.cluster.task_index,
                 "Index of this process among the addresses of its job")
      ->type_name("N")
      ->group(group);
  app.add_option("--replicas", command.replicas,
                 "sync (default): a step adds train.gradient_accumulation_steps gradients; async: "
                 "each gradient is a step")
      ->check(CLI::IsMember({"sync", "async"}))
      ->type_name("MODE")
      ->group(group);
  app.add_option("--max-staleness", command.max_staleness,
                 "With async, the most updates between the parameters of a gradient and its own")
      ->type_name("N")
      ->group(group);
  app.add_option("--placement", command.placement,
                 "Distribution of the variables over the servers (default: round_robin)")
      ->check(CLI::IsMember({"round_robin", "bytes"}))
      ->type_name("HOW")
      ->group(group);
}

void add_options(CLI::App& app, CommandLine& command) {
  app.add_option("--config", command.config,
                 "Configuration file: see stoker.yaml(5); examples: share/stoker/config")
      ->required()
      ->type_name("FILE");
  app.add_option("--run-dir", command.run_dir, "Run directory; overrides run.dir")
      ->type_name("DIR");
  app.add_option("--set", command.overrides,
                 "Override one key, for example --set train.max_steps=10; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--check-config", command.check,
               "Validate the configuration, print it fully resolved, and exit");
  app.add_flag(
      "--check-data", command.check_data,
      "Open all datasets as a run would, print what they contain, or every error, and exit");
  auto* const fresh = app.add_flag(
      "--fresh", command.fresh, "Start a new run; archive the existing one in the run directory");
  app.add_option("--resume", command.resume, "Resume from this checkpoint instead of the newest")
      ->type_name("CHECKPOINT")
      ->excludes(fresh);
  add_allowances(app, command.allowed, fresh);
  add_cluster_options(app, command);
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine command;
  CLI::App app{"stokerd trains a model from a configuration, as a service.", "stokerd"};
  app.footer(kFooter);
  app.set_version_flag("--version", format_version());
  add_options(app, command);
  add_document_option(app, 8, config::key_completions);
  try {
    parse_options(app, argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << help_text(app);
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::Success& answered) {  // --version, --print-document
    app.exit(answered);
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::ParseError& error) {
    // The file alone, as other programs take it.
    const std::vector<std::string> words = app.remaining();
    const bool is_without_value = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
    if (!is_without_value && words.size() == 1 && !words.front().starts_with('-') &&
        command.config.empty()) {
      std::cerr << "stokerd: " << quote_for_message(words.front())
                << " is not an option; for a configuration, write stokerd --config "
                << printable(words.front()) << "\n";
      return {std::nullopt, ExitCode::kUsage};
    }
    std::cerr << "stokerd: " << printable_lines(error.what(), "  ") << "; try stokerd --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
  return {command, ExitCode::kSuccess};
}

}  // namespace stoker::app
