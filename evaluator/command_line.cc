#include "evaluator/command_line.h"

#include <iostream>
#include <utility>

#include <CLI/CLI.hpp>

#include "shared/base/build_info.h"
#include "shared/base/cli_documents.h"
#include "shared/base/cli_options.h"
#include "shared/base/utf8.h"
#include "shared/config/reference.h"

namespace stoker::evaluator {
namespace {

constexpr const char* kFooter = R"(Examples:
  stoker-eval --run-dir runs/demo --follow          evaluate checkpoints as they appear until the run ends
  stoker-eval --run-dir runs/demo                   evaluate all pending checkpoints, then exit
  stoker-eval --run-dir runs/demo --follow --until-step 20000
                                                    the same, but exit once step 20000 or a later one has been evaluated
  stoker-eval --checkpoint runs/demo/checkpoints/step-000001200
                                                    evaluate one checkpoint and print the result; write no files
  stoker-eval --config demo.yaml --checkpoint weights.safetensors
                                                    the same for any weights, on the datasets of demo.yaml
  stoker-eval --run-dir runs/demo --generate 300    print text generated with the best checkpoint

Only the run directory is needed; the trainer can be running, paused or stopped and is not affected.
Selection, order and pace of checkpoints: eval.checkpoints, order, start_delay_seconds, throttle_seconds.
Results: RUN/eval/step-*.json, best.json, outcomes.jsonl, artifacts/; RUN/metrics/eval.jsonl; RUN/tensorboard; RUN/logs/stoker-eval.log.
--follow exits with 0 when the run has ended and all checkpoints are evaluated. It logs what it waits for.
Without --follow, a checkpoint that cannot be evaluated is an error: 65 if it or the data is corrupt, else by its cause; the others are evaluated.
Exit codes: 0 done or stopped, 64 usage, 65 corrupt checkpoint or data, 70 internal error, crashed or hung evaluation,
71 out of memory, 72 device lost, 74 I/O error, 75 another evaluator has locked the run, or another program a checkpoint,
78 configuration, 143 forced exit.)";

// Not a CLI11 range check, whose help text would show the largest double.
std::string check_step(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && text.size() <= 18 && text.find_first_not_of('0') != std::string::npos) return "";
  return "must be an integer >= 1";
}

// Adds the options that select checkpoints; returns those that --generate excludes.
struct SelectionOptions {
  CLI::Option* follow;
  CLI::Option* checkpoint;
};
SelectionOptions add_selection_options(CLI::App& app, CommandLine& command, bool& once) {
  app.add_option("--run-dir", command.run_dir, "Run directory; not needed with --checkpoint")
      ->type_name("DIR");
  auto* const follow =
      app.add_flag("--follow", command.follow, "Wait for new checkpoints until the run ends");
  app.add_flag("--once", once, "Evaluate the pending checkpoints and exit (default)")
      ->excludes(follow);
  app.add_option("--until-step", command.until,
                 "Exit once this step or a later one has been evaluated")
      ->type_name("STEP")
      ->check(check_step)
      ->needs(follow);
  auto* const checkpoint =
      app.add_option("--checkpoint", command.checkpoints,
                     "Evaluate this checkpoint directory or .safetensors file; repeatable")
          ->type_name("PATH")
          ->allow_extra_args(false)
          ->excludes(follow);
  return {follow, checkpoint};
}

void add_options(CLI::App& app, CommandLine& command) {
  app.add_option("--config", command.config, "Configuration, instead of the run's own config.yaml")
      ->type_name("FILE");
  app.add_option("--set", command.overrides,
                 "Override one key, for example --set eval.batch_size=16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--trust", command.trust,
               "Execute the plugin or eval.on_best_command of a configuration "
               "that belongs to another user, and read without a sandbox if it says so");
}

// Returns --generate, without which `generate` is not used.
CLI::Option* add_generation_options(CLI::App& app, config::GenerateConfig& generate,
                                    const SelectionOptions& selection) {
  auto* const sample = app.add_option("--generate", generate.max_new_tokens,
                                      "Generate N tokens of text with the best checkpoint and exit")
                           ->type_name("N")
                           ->check(CLI::Range(1, 1'000'000))
                           ->excludes(selection.follow)
                           ->excludes(selection.checkpoint);
  app.add_option("--prompt", generate.prompt, "Prompt")->type_name("TEXT")->needs(sample);
  app.add_option("--temperature", generate.temperature,
                 "Sampling temperature; 0: the most likely token")
      ->type_name("T")
      ->check(CLI::Range(0.0, 10.0))
      ->needs(sample);
  app.add_option("--top-k", generate.top_k, "Sample from the K most likely tokens")
      ->type_name("K")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(sample);
  app.add_option("--top-p", generate.top_p,
                 "Sample from the most likely tokens with this total probability")
      ->type_name("P")
      ->check(CLI::Range(0.01, 1.0))
      ->needs(sample);
  return sample;
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine command;
  bool once = false;
  CLI::App app{"stoker-eval evaluates the checkpoints of a run in a separate process.",
               "stoker-eval"};
  app.footer(kFooter);
  app.set_version_flag("--version", version_text("stoker-eval"));
  const SelectionOptions selection = add_selection_options(app, command, once);
  add_options(app, command);
  config::GenerateConfig generate;
  const CLI::Option* const sample = add_generation_options(app, generate, selection);
  add_document_option(app, 1, config::key_completions);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << help_text(app);
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::Success& answered) {
    app.exit(answered);
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::ParseError& error) {
    std::cerr << "stoker-eval: " << printable_lines(error.what(), "  ")
              << "; try stoker-eval --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
  if (sample->count() > 0) command.generate = std::move(generate);
  if (command.run_dir.empty() && command.checkpoints.empty()) {
    std::cerr << "stoker-eval: --run-dir is required (or --checkpoint); try stoker-eval --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
  return {command, ExitCode::kSuccess};
}

}  // namespace stoker::evaluator
