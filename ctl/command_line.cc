#include "ctl/command_line.h"

#include <algorithm>
#include <cassert>
#include <cctype>
#include <ostream>

#include <CLI/CLI.hpp>

#include "ctl/plot_file.h"
#include "ctl/run_locator.h"
#include "shared/base/build_info.h"
#include "shared/base/cli_documents.h"
#include "shared/base/cli_options.h"
#include "shared/base/utf8.h"
#include "shared/config/config_errors.h"
#include "shared/control/grammar.h"

namespace stoker::ctl {
namespace {

constexpr const char* kFooter = R"(Examples:
  stokerctl --run-dir runs/demo status        show the training status
  stokerctl --run-dir runs/demo top           the same as a live screen with curves and keys
  stokerctl --run-dir runs/demo watch         a line every second, until the run ends
  stokerctl --run-dir runs/demo threads       list the threads of stokerd and what each does
  stokerctl --run-dir runs/demo set optimizer.lr 1e-4
                                              change a setting while the run trains
  stokerctl --run-dir runs/demo get           show the settings that can change
  stokerctl --run-dir runs/demo profile 50    profile the next 50 steps
  stokerctl --run-dir runs/demo inspect 'blocks.0.*' --gradients --histograms
                                              show live statistics of the gradients of a block
  stokerctl --run-dir runs/demo checkpoint    save a checkpoint now; return when it is durable
  stokerctl --run-dir runs/demo evaluate 1200 --wait
                                              evaluate step 1200 now and show its metrics
  stokerctl --run-dir runs/demo list          list the checkpoints, the best one marked
  stokerctl --run-dir runs/demo verify 1200   verify the checksums of step 1200
  stokerctl --run-dir runs/demo diff 800 1200 compare the weights of two checkpoints
  stokerctl --run-dir runs/demo export best --format torch --output best.pt
                                              export the weights for torch.load
  stokerctl --run-dir runs/demo show-batch 1200
                                              list the samples of step 1200
  stokerctl --run-dir runs/demo logs -f       follow the trainer's log
  stokerctl --run-dir runs/demo events 'checkpoint *'
                                              show these events as they happen
  stokerctl --run-dir runs/demo plot --output loss.svg
                                              write the loss curves to an image file
  stokerctl report runs/a runs/b              compare two runs: settings and best values
  stokerctl report --html report.html runs/a runs/b
                                              write a page that compares them
  stokerctl plot runs/a runs/b                plot their losses in the terminal
  stokerctl runs runs                         list the runs in a directory
  cd runs/demo && stokerctl report            inside a run directory --run-dir is not needed
  stokerctl --json status | jq .loss          for scripts
  stokerctl install-service                   write systemd units for a Python environment

top, watch, threads, pause, resume, checkpoint, stop, reload, events, get, set, unset, profile and
inspect need a running stokerd; status and runs ask it if there is one, and otherwise print the end
of the run. The others use the run directory only: the run may be running, have ended, or be a copy
elsewhere. With --socket, logs, evaluate and show-batch ask stokerd instead.

Exit codes: 0 success, 64 usage error, 65 verify found a corrupt checkpoint, 69 stokerd is not
reachable, 70 internal error (evaluate --wait: that of the evaluation), 74 I/O error or permission,
75 stokerd is busy, 78 not a run directory, or no data yet. watch: that of a run that ends.)";

// Of --help.
std::string group_of(const std::string& name) {
  for (const auto& [group, names] :
       {std::pair<const char*, std::vector<std::string>>{
            "Watch a run", {"status", "top", "watch", "threads", "events", "logs"}},
        {"Control training",
         {"pause", "resume", "checkpoint", "stop", "reload", "get", "set", "unset"}},
        {"Look inside a run", {"profile", "inspect", "show-batch"}},
        {"Checkpoints", {"list", "verify", "diff", "export", "evaluate", "class-report"}},
        {"Compare runs", {"report", "plot", "runs"}},
        {"Install", {"install-service"}}})
    if (std::ranges::find(names, name) != names.end()) return group;
  assert(false);
  return "Options";
}

std::string check_selector(const std::string& text) {
  if (is_selector(text)) return "";
  return "'" + printable(text) + "' is not a valid step; use an integer, latest or best";
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// CLI11 would parse "-3" as a very large unsigned number.
std::string check_step(const std::string& text) {
  if (is_number(text) && text.size() <= 18) return "";
  return "'" + printable(text) + "' is not a valid step; use an integer";
}

std::string check_image_file(const std::string& path) {
  if (path == "-" || plot_format_of(path)) return "";
  return "'" + printable(path) + "' has another ending than .svg, .png or .html";
}

// CLI11 stores references to the option variables, so they live as long as the parser.
class Parser {
 public:
  Parser() : app_("stokerctl controls and inspects the runs of stokerd.", "stokerctl") {
    app_.set_version_flag("--version", version_text("stokerctl"));
    app_.require_subcommand(0, 1);  // none: our own error message
    app_.fallthrough();             // --run-dir is accepted after the command, too
    auto* const run_dir = app_.add_option("--run-dir", command_.run_dir,
                                          "Run directory (default: the current directory)");
    run_dir->type_name("DIR");
    app_.add_option("--socket", command_.socket,
                    "Control socket of stokerd, instead of a run directory")
        ->type_name("PATH")
        ->excludes(run_dir);
    app_.add_flag("--json", command_.json, "Print JSON, for scripts");
    // Of the completion of a shell.
    app_.add_option(kCandidatesOption, command_.candidates)
        ->check(CLI::IsMember({"steps", "keys", "live-keys", "metrics"}))
        ->group("");
    add_commands_for_daemon();
    add_commands_for_directory();
    add_install_service();
    app_.footer(kFooter);
    add_document_option(app_, 1);
  }

  // Throws CLI::ParseError.
  CommandLine parse(int argc, const char* const* argv) {
    command_.invoked_as = argv[0];
    try {
      parse_options(app_, argc, argv);
    } catch (const CLI::ExtrasError&) {
      if (app_.get_subcommands().empty()) check_unknown_command();
      throw;
    }
    if (app_.get_subcommands().empty() && command_.candidates.empty())
      throw CLI::ValidationError("missing command; commands: " + command_names());
    if (!command_.candidates.empty()) {
      command_.action = Action::kCandidates;
      return command_;
    }
    check_combination();
    return command_;
  }
  std::string help() const {
    const auto selected = app_.get_subcommands();
    return selected.empty() ? help_text(app_) : help_text(*selected.front(), "stokerctl");
  }

 private:
  CLI::App* add(const std::string& name, Action action, const std::string& text) {
    CLI::App* const command = app_.add_subcommand(name, text);
    command->group(group_of(name));
    command->footer("\nFor --run-dir, --json, examples and exit codes: stokerctl --help");
    command->callback([this, action] { command_.action = action; });
    return command;
  }

  // Adds a subcommand for a method of the control protocol, with the description from there.
  CLI::App* add_method(const control::Call& call, Action action, const std::string& more = "") {
    const control::MethodInfo& info = control::method_info(call);
    std::string text(info.text);
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    if (!info.waits_for.empty()) text += "; return when " + std::string(info.waits_for);
    return add(std::string(info.name), action, text + more);
  }
  void add_command(const control::Command& command) {
    add_method(command, Action::kCommand)->callback([this, command] { set_request(command); });
  }
  void set_request(control::Command command) {
    command_.action = Action::kCommand;
    command_.request = std::move(command);
  }

  void add_commands_for_daemon() {
    add_method(control::GetStatus{}, Action::kStatus);
    add("top", Action::kTop, "Show a live screen with curves until the run ends or q is pressed");
    add("watch", Action::kWatch, "Print a line of status every second until the run ends");
    add_method(control::GetThreads{}, Action::kThreads);
    add_pause();
    add_command(control::Resume{});
    add_checkpoint();
    add_command(control::Stop{});
    add_dry_run(*add_method(control::Reload{}, Action::kReload), command_.dry_run);
    add_events();
    add_settings();
    add_profile();
    add_inspect_options();
  }

  // Of commands that take longer than a step.
  static void add_no_wait(CLI::App& command, bool& no_wait) {
    command.add_flag("--no-wait", no_wait,
                     "Return immediately, with the number of the job that `events` shows");
  }

  // Of commands that can report what they would do.
  static CLI::Option* add_dry_run(CLI::App& command, bool& dry_run) {
    return command.add_flag("--dry-run", dry_run, "Only show what would change");
  }

  void add_pause() {
    CLI::App* const command = add_method(control::Pause{}, Action::kCommand);
    command->add_flag("--release", pause_.release,
                      "Save a checkpoint and release the memory of the GPU until `resume`");
    command->callback([this] { set_request(pause_); });
  }

  void add_checkpoint() {
    CLI::App* const command = add_method(control::SaveCheckpoint{}, Action::kCommand);
    add_no_wait(*command, no_wait_);
    command->callback([this] { set_request(control::SaveCheckpoint{.wait = !no_wait_}); });
  }

  void add_events() {
    CLI::App* const command =
        add("events", Action::kEvents, "Show the events of stokerd as they happen, until it exits");
    command
        ->add_option("PATTERN", command_.subscription.events,
                     "Names of events, such as 'checkpoint *' (default: all)")
        ->check([](const std::string& pattern) {
          const bool fits =
              !pattern.empty() && pattern.size() <= control::Subscribe::kMaxPatternBytes;
          return std::string(fits ? "" : "must have 1 to 256 bytes");
        });
  }

  void add_settings() {
    CLI::App* const get = add_method(control::GetSettings{}, Action::kSettings);
    get->add_option("KEY", command_.settings.key,
                    "A setting, such as train.max_steps, or a section");
    CLI::App* const set =
        add_method(control::SetSetting{}, Action::kCommand, ": set optimizer.lr 1e-4");
    set->add_option("KEY", set_.key, "A setting that `get` lists")->required();
    set->add_option("VALUE", set_.value, "As in the configuration: 0.0003, 3e-4, null, debug")
        ->required();
    add_dry_run(*set, set_.dry_run);
    set->callback([this] { set_request(set_); });
    CLI::App* const unset = add_method(control::UnsetSetting{}, Action::kCommand);
    unset->add_option("KEY", unset_.key, "A setting that was set during the run")->required();
    add_dry_run(*unset, unset_.dry_run);
    unset->callback([this] { set_request(unset_); });
  }

  void add_profile() {
    CLI::App* const command = add("profile", Action::kCommand, "Profile the next N steps");
    command->add_option("N", profile_.steps, "Number of steps, at most 1000 (100 with --kernels)")
        ->required()
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::Profile::kMaxSteps}));
    command
        ->add_option("--output", command_.output,
                     "Copy the trace to this file (it also stays in the run directory's profiles/)")
        ->type_name("FILE");
    command->add_flag("--kernels", profile_.kernels,
                      "Record LibTorch's profile as well: operators, on a GPU kernels");
    add_no_wait(*command, no_wait_);
    command->callback([this] {
      profile_.wait = !no_wait_;
      set_request(profile_);
    });
  }

  void add_inspect_options() {
    CLI::App* const command =
        add("inspect", Action::kCommand,
            "Show live statistics of parameters, gradients, activations and inputs");
    command->add_option("GLOB", inspection_.glob,
                        "Names of parameters and modules, as in checkpoints: 'blocks.0.*'; of "
                        "inputs (default with --inputs: all)");
    auto* const every =
        command->add_option("--every", inspection_.every, "Inspect steps that are multiples of N");
    every->type_name("N")
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::OpenInspection::kMaxEvery}))
        ->capture_default_str();
    command
        ->add_option("--steps", inspection_.steps,
                     "Stop after K inspected steps (default: no limit)")
        ->type_name("K")
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::OpenInspection::kMaxEvery}));
    inspection_.parameters = inspection_.gradients = inspection_.activations = false;
    command->add_flag("--parameters", inspection_.parameters,
                      "Show parameters, after the update of the step");
    command->add_flag("--gradients", inspection_.gradients, "Show gradients, before clipping");
    command->add_flag("--activations", inspection_.activations,
                      "Show outputs of modules (default without the three options: all)");
    command->add_flag("--inputs", inspection_.inputs,
                      "Show the tensors of the next batch, its ticket and files (alone, without "
                      "--steps and --every: of one step)");
    command->add_flag("--histograms", inspection_.histograms, "Show histograms from min to max");
    command->callback([this, every] { request_inspection(every->count() > 0); });
  }

  void request_inspection(bool has_every) {
    if (!inspection_.validate().ok())
      inspection_.parameters = inspection_.gradients = inspection_.activations = true;
    const bool has_only_inputs =
        !inspection_.parameters && !inspection_.gradients && !inspection_.activations;
    if (inspection_.glob.empty() && !has_only_inputs) throw CLI::RequiredError("GLOB");
    if (inspection_.glob.empty()) inspection_.glob = "*";
    if (has_only_inputs && !has_every && inspection_.steps == 0) inspection_.steps = 1;
    set_request(inspection_);
  }

  void add_commands_for_directory() {
    add("list", Action::kList, "List checkpoints");
    CLI::App* const verify = add("verify", Action::kVerify, "Verify checksums");
    auto* const step = verify->add_option("STEP", command_.selector, "A step, latest or best")
                           ->check(check_selector)
                           ->capture_default_str();
    verify->add_flag("--all", command_.all, "Verify all checkpoints")->excludes(step);
    CLI::App* const diff = add("diff", Action::kDiff, "Compare the weights of two checkpoints");
    diff->add_option("FROM", command_.selector, "A step, latest or best")
        ->required()
        ->check(check_selector);
    diff->add_option("TO", command_.second_selector, "A step, latest or best")
        ->required()
        ->check(check_selector);
    diff->add_flag("--all", command_.all, "Show all tensors, not only the 20 that changed most");
    add_export();
    add_evaluate();
    add_commands_for_history();
  }

  // Commands that read what a run has recorded.
  void add_commands_for_history() {
    CLI::App* const classes =
        add("class-report", Action::kClassReport, "Show per-class precision, recall and F1");
    classes->add_option("STEP", command_.selector, "A step, latest or best")
        ->check(check_selector)
        ->capture_default_str();
    classes
        ->add_option("--dataset", command_.dataset, "Dataset (default: the first that has classes)")
        ->type_name("NAME");
    CLI::App* const show_batch =
        add("show-batch", Action::kShowBatch,
            "List the samples of a step, their files and random transforms");
    show_batch->add_option("N", command_.step, "Step, from 1")->required()->check(check_step);
    CLI::App* const logs = add("logs", Action::kLogs, "Show the log");
    logs->add_option("-n,--lines", command_.lines,
                     "Number of lines, of --all in total (default: 20)")
        ->type_name("N")
        ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000}));
    logs->add_flag("-f,--follow", command_.follow, "Follow the log until the run ends");
    CLI::Option* const of_evaluator =
        logs->add_flag("--evaluator", command_.evaluator, "Show the evaluator's log instead");
    CLI::Option* const of_rank =
        logs->add_option("--rank", command_.rank, "Show the log of this rank of a group")
            ->type_name("R")
            ->check(CLI::Range(0, 1 << 16));
    CLI::Option* const of_all =
        logs->add_flag("--all", command_.all, "Show the logs of all ranks, by time");
    of_rank->excludes(of_evaluator)->excludes(of_all);
    of_all->excludes(of_evaluator);
    CLI::App* const report =
        add("report", Action::kReport, "Summarize a run, or compare several in a table");
    add_runs(*report);
    report
        ->add_option("--html", command_.html,
                     "Write a page that needs no other file, with curves, settings and samples")
        ->type_name("FILE");
    add("runs", Action::kRuns, "List the runs in a directory, the newest activity first")
        ->add_option("DIR", command_.directory, "Directory with runs (default: the current one)")
        ->type_name("DIR");
    CLI::App* const plot = add("plot", Action::kPlot, "Plot loss curves, of several runs together");
    add_runs(*plot);
    plot->add_option("--metric", command_.metric,
                     "Plot this metric of the evaluator instead, of each dataset that has it")
        ->type_name("NAME");
    plot->add_option(
            "--output", command_.output,
            "Write an image to FILE.svg, FILE.png (by rsvg-convert) or FILE.html; - writes "
            "SVG to standard output")
        ->type_name("FILE")
        ->check(check_image_file);
  }

  void add_runs(CLI::App& command) {
    command.add_option("RUN", command_.runs, "Run directories (default: that of --run-dir)")
        ->type_name("DIR");
  }

  void add_export() {
    CLI::App* const command =
        add("export", Action::kExport,
            "Export tensors as safetensors, for PyTorch or as a Hugging Face folder");
    command->add_option("STEP", command_.selector, "A step, latest or best")
        ->required()
        ->check(check_selector);
    command
        ->add_option_function<std::string>(
            "--format",
            [this](const std::string& word) {
              command_.format = word == "torch"         ? ExportFormat::kTorch
                                : word == "dcp"         ? ExportFormat::kDcp
                                : word == "huggingface" ? ExportFormat::kHuggingFace
                                : word == "peft"        ? ExportFormat::kPeft
                                : word == "timm"        ? ExportFormat::kTimm
                                                        : ExportFormat::kSafetensors;
            },
            "safetensors; torch: what torch.load(weights_only=True) reads; dcp: a folder for "
            "torch.distributed.checkpoint; huggingface: a folder that transformers reads, for "
            "models "
            "gpt2, llama, bert, vit and resnet; timm: a folder that timm reads, for vit, resnet "
            "and "
            "inception_v3; peft: a folder with an adapter that PEFT reads, the default for one")
        ->type_name("FORMAT")
        ->check(CLI::IsMember({"safetensors", "torch", "dcp", "huggingface", "timm", "peft"}))
        ->default_str("safetensors");
    command
        ->add_option_function<std::string>(
            "--include",
            [this](const std::string& word) {
              command_.content = word == "model"       ? ExportContent::kModel
                                 : word == "ema"       ? ExportContent::kEma
                                 : word == "optimizer" ? ExportContent::kOptimizer
                                                       : ExportContent::kAll;
            },
            "model, ema (averaged weights), optimizer or all (default: model; of STEP best the "
            "weights that were evaluated)")
        ->type_name("WHAT")
        ->check(CLI::IsMember({"model", "ema", "optimizer", "all"}));
    command->add_flag("--dry-run", command_.dry_run,
                      "Check everything and show what would be written, without writing it");
    command->add_flag("--merge", command_.merge,
                      "Merge the adapter (model.lora) into the pretrained weights, which are read "
                      "from model.pretrained.path");
    command
        ->add_option("--output", command_.output,
                     "File or folder to write (default: step-N.safetensors, .pt, .dcp, "
                     ".huggingface, .timm or .peft, here); must not exist")
        ->type_name("FILE")
        ->check([](const std::string& path) {
          return std::string(path.empty() ? "must not be empty" : "");
        });
  }

  void add_evaluate() {
    CLI::App* const command = add("evaluate", Action::kEvaluate,
                                  "Request an evaluation of a checkpoint, even if it has one");
    command->add_option("STEP", command_.selector, "A step, latest or best")
        ->required()
        ->check(check_selector);
    CLI::Option* const wait =
        command->add_flag("--wait", command_.wait, "Return when it is evaluated, with the metrics");
    command->add_flag("--dry-run", command_.dry_run, "Only show what would be requested")
        ->excludes(wait);
  }

  void add_install_service() {
    CLI::App* const command = add("install-service", Action::kInstallService,
                                  "Write systemd units for this installation");
    CLI::Option* const user =
        command->add_flag("--user", command_.user_units, "Units of your own: systemctl --user");
    command
        ->add_option("--service-user", command_.service_user, "User that the system's units run as")
        ->type_name("NAME")
        ->capture_default_str()
        ->excludes(user);
    command
        ->add_option("--output", command_.output,
                     "Folder to write (default: /etc/systemd/system, with --user "
                     "~/.config/systemd/user)")
        ->type_name("DIR");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app_.get_subcommands({})) names.push_back(command->get_name());
    return names;
  }
  std::string command_names() const {
    std::string text;
    for (const std::string& name : names()) text += (text.empty() ? "" : " ") + name;
    return text;
  }
  void check_unknown_command() const {
    const auto words = app_.remaining();
    if (words.empty() || words.front().starts_with('-')) return;
    const std::string nearest = config::closest_match(words.front(), names());
    throw CLI::ValidationError(
        "no command '" + printable(words.front()) + "'; " +
        (nearest.empty() ? "commands: " + command_names() : "did you mean '" + nearest + "'?"));
  }

  void check_combination() const {
    const std::string name = app_.get_subcommands().front()->get_name();
    const bool reads_directory = command_.action >= Action::kEvaluate;
    const bool works_remotely = command_.action == Action::kLogs ||
                                command_.action == Action::kEvaluate ||
                                command_.action == Action::kShowBatch;
    if (works_remotely && !command_.socket.empty()) check_remote(name);
    if (reads_directory && !works_remotely && !command_.socket.empty())
      throw CLI::ValidationError(name + " reads a run directory; use --run-dir, not --socket");
    if (name == "profile" && !command_.output.empty() && no_wait_)
      throw CLI::ValidationError(
          "profile --output copies the trace when it is written; omit --no-wait");
    if (name == "profile" && !command_.output.empty() && !command_.socket.empty())
      throw CLI::ValidationError(
          "profile --output copies from the run directory; use --run-dir, not --socket");
    const bool text_only = command_.action == Action::kLogs || command_.action == Action::kReport ||
                           command_.action == Action::kPlot;
    if (text_only && command_.json) {
      throw CLI::ValidationError(name +
                                 " has no JSON output; read the files in the run "
                                 "directory instead: metrics/*.jsonl, logs/*.log");
    }
    if (!command_.runs.empty() && !command_.run_dir.empty())
      throw CLI::ValidationError(name + ": name the runs, or use --run-dir, not both");
    if (command_.action == Action::kInstallService && (command_.json || !command_.run_dir.empty()))
      throw CLI::ValidationError("install-service has neither --run-dir nor --json");
    if (command_.action == Action::kRuns && !command_.run_dir.empty())
      throw CLI::ValidationError("runs lists a directory of runs; use runs DIR, not --run-dir");
    if (command_.action == Action::kShowBatch && command_.step == 0)
      throw CLI::ValidationError("show-batch: the first step is 1");
  }

  // With --socket, without access to the run directory.
  void check_remote(const std::string& name) const {
    if (command_.action == Action::kEvaluate &&
        (command_.wait || command_.dry_run || !is_number(command_.selector)))
      throw CLI::ValidationError(
          "evaluate --wait, --dry-run, latest and best need the run directory; use --run-dir, not "
          "--socket");
    if (command_.action == Action::kLogs &&
        (command_.all || (command_.follow && (command_.evaluator || command_.rank))))
      throw CLI::ValidationError(
          name +
          ": --all, and -f of another log than stokerd's, need the run directory; use "
          "--run-dir, not --socket");
  }

  CLI::App app_;
  CommandLine command_;
  bool no_wait_ = false;
  control::Pause pause_;
  control::SetSetting set_;
  control::UnsetSetting unset_;
  control::Profile profile_;
  control::OpenInspection inspection_;
};

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                     std::ostream& err) {
  Parser parser;
  try {
    return {parser.parse(argc, argv), ExitCode::kSuccess};
  } catch (const CLI::CallForVersion& answer) {
    out << answer.what() << "\n";
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::Success&) {  // --help
    out << parser.help();
    return {std::nullopt, ExitCode::kSuccess};
  } catch (const CLI::ParseError& error) {
    err << "stokerctl: " << printable_lines(error.what(), "  ") << "; try stokerctl --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
}

}  // namespace stoker::ctl
