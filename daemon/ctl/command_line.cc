#include "daemon/ctl/command_line.h"

#include <cmath>
#include <ostream>

#include <CLI/CLI.hpp>

#include "daemon/ctl/checkpoint_choice.h"
#include "daemon/ctl/number_text.h"
#include "shared/config/nearest_word.h"
#include "shared/control/look_requests.h"

namespace stoker::ctl {
namespace {

constexpr const char* kFooter = R"(Examples:
  stokerctl --run-dir runs/demo status        what training is doing
  stokerctl --run-dir runs/demo watch         the same, live, until the run ends
  stokerctl --run-dir runs/demo set lr 1e-4   change the learning rate
  stokerctl --run-dir runs/demo profile 50    where the time of the next 50 steps goes
  stokerctl --run-dir runs/demo tap 'blocks.0.*' --gradients --histogram
                                              what the gradients of a block look like, live
  stokerctl --run-dir runs/demo checkpoint    save now; returns when it is safe on the disk
  stokerctl --run-dir runs/demo list          the checkpoints, the best one marked
  stokerctl --run-dir runs/demo verify 1200   is every byte of step 1200 as it was saved?
  stokerctl --run-dir runs/demo diff 800 1200 how far each tensor moved meanwhile
  stokerctl --run-dir runs/demo export best --format torch --output best.pt
                                              its weights, for torch.load
  stokerctl --run-dir runs/demo explain --step 1200
                                              which samples were in that step
  stokerctl --run-dir runs/demo logs -f       the trainer's log, as it grows
  stokerctl --run-dir runs/demo plot --svg loss.svg
                                              the curves as a picture
  cd runs/demo && stokerctl report            inside a run directory --run-dir is not needed
  stokerctl --json status | jq .loss          for scripts

status, watch, pause, resume, checkpoint, stop, set, profile and tap need a running stokerd. The
others read the run directory only: the run may be going on, have ended, or be a copy elsewhere.

Exit codes: 0 done, 64 usage, 65 verify found damage, 69 no stokerd answers, 74 I/O or permission,
75 stokerd is busy, 78 not a run directory, or nothing there yet.)";

std::string check_choice(const std::string& text) {
  if (is_choice(text)) return "";
  return "'" + printable(text) + "' is no step: give a whole number, latest or best";
}

// CLI11 would take "-3" for a very large number.
std::string check_step(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && text.size() <= 18) return "";
  return "'" + printable(text) + "' is no step: give a whole number";
}

// CLI11 wants what a subcommand fills in to live as long as the parser.
class Parser {
 public:
  Parser() : app_("stokerctl controls and inspects the runs of stokerd.", "stokerctl") {
    app_.set_version_flag("--version", "stokerctl " STOKER_VERSION);
    app_.require_subcommand(0, 1);  // none: said in our own words
    app_.fallthrough();             // --run-dir may stand behind the command too
    auto* const run_dir = app_.add_option("--run-dir", command_.run_dir,
                                          "Run directory (default: the current directory)");
    run_dir->type_name("DIR");
    app_.add_option("--socket", command_.socket, "Control socket of a stokerd, instead")
        ->type_name("PATH")
        ->excludes(run_dir);
    app_.add_flag("--json", command_.json, "Answer in JSON, for scripts");
    add_commands_for_daemon();
    add_commands_for_directory();
    app_.footer(kFooter);
  }

  // Throws CLI::ParseError.
  CommandLine parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ExtrasError&) {
      if (app_.get_subcommands().empty()) check_unknown_command();
      throw;
    }
    if (app_.get_subcommands().empty())
      throw CLI::ValidationError("which command? one of: " + command_names());
    check_combination();
    return command_;
  }
  std::string help() const {
    const auto chosen = app_.get_subcommands();
    return chosen.empty() ? app_.help() : chosen.front()->help("stokerctl");
  }
  std::string version() const { return app_.version(); }

 private:
  CLI::App* add(const char* name, Action action, const char* text) {
    CLI::App* const command = app_.add_subcommand(name, text);
    command->footer("\nFor --run-dir, --json, examples and exit codes: stokerctl --help");
    command->callback([this, action] { command_.action = action; });
    return command;
  }

  void add_commands_for_daemon() {
    add("status", Action::kStatus, "What training is doing");
    add("watch", Action::kWatch, "status, redrawn every second until the run ends");
    add("pause", Action::kPause, "Stand still after the step in progress");
    add("resume", Action::kResume, "Go on after a pause");
    add("checkpoint", Action::kCheckpoint, "Save now; returns when it is safe on the disk");
    add("stop", Action::kStop, "Finish the step, save, end");
    CLI::App* const set = add("set", Action::kSet, "Change a setting while training: set lr 1e-4");
    set->add_option("KEY", key_, "lr: the learning rate")->required();
    set->add_option("VALUE", command_.lr, "As a number: 0.0003 or 3e-4")->required();
    add_profile();
    add_tap();
  }

  void add_profile() {
    CLI::App* const command =
        add("profile", Action::kProfile, "Where the time of the next steps goes: table and trace");
    command->add_option("N", command_.steps, "So many steps, at most 1000 (100 with --kernels)")
        ->required()
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::ProfileRequest::kMaxSteps}));
    command
        ->add_option("--out", command_.output,
                     "Copy the trace to this file (it stays in the run directory's profiles/ too)")
        ->type_name("FILE");
    command->add_flag("--kernels", command_.kernels,
                      "LibTorch's own profile as well: each operator, on a GPU each kernel");
  }

  void add_tap() {
    CLI::App* const command =
        add("tap", Action::kTap, "Statistics of tensors, by name, while training runs");
    command
        ->add_option("GLOB", command_.glob,
                     "Names of parameters and modules, as in checkpoints: 'blocks.0.*'")
        ->required();
    command->add_option("--every", command_.every, "Of steps at multiples of so many")
        ->type_name("N")
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::TapRequest::kMaxEvery}))
        ->capture_default_str();
    command->add_option("--steps", command_.steps, "So many such steps, then end (default: no end)")
        ->type_name("K")
        ->check(CLI::Range(uint64_t{1}, uint64_t{control::TapRequest::kMaxEvery}));
    command->add_flag("--parameters", command_.parameters, "Parameters, after the step's update");
    command->add_flag("--gradients", command_.gradients, "Gradients, before clipping");
    command->add_flag("--outputs", command_.outputs,
                      "What modules give back; with none of the three: all of them");
    command->add_flag("--histogram", command_.histogram, "How their numbers lie from min to max");
  }

  void add_commands_for_directory() {
    add("list", Action::kList, "The checkpoints: step, age, size, validation, and what keeps each");
    CLI::App* const verify =
        add("verify", Action::kVerify, "Is every byte of a checkpoint as it was saved?");
    auto* const step = verify->add_option("STEP", command_.which, "A step, latest or best")
                           ->check(check_choice)
                           ->capture_default_str();
    verify->add_flag("--all", command_.all, "All checkpoints")->excludes(step);
    CLI::App* const diff =
        add("diff", Action::kDiff, "How far the weights moved between two checkpoints");
    diff->add_option("FROM", command_.which, "A step, latest or best")
        ->required()
        ->check(check_choice);
    diff->add_option("TO", command_.other, "Another one")->required()->check(check_choice);
    diff->add_flag("--all", command_.all, "All tensors, not only the 20 that moved most");
    add_export();
    add_commands_for_history();
  }

  // What a run has written down.
  void add_commands_for_history() {
    CLI::App* const classes =
        add("classes", Action::kClasses, "How each class fares in a validation, the worst first");
    classes->add_option("STEP", command_.which, "A step, latest or best")
        ->check(check_choice)
        ->capture_default_str();
    classes->add_option("--set", command_.set, "Of this set (default: the first that has classes)")
        ->type_name("NAME");
    CLI::App* const explain =
        add("explain", Action::kExplain, "Which samples a step trains on, and from which files");
    explain->add_option("--step", command_.step, "The step, from 1")
        ->required()
        ->type_name("N")
        ->check(check_step);
    CLI::App* const logs = add("logs", Action::kLogs, "The end of the trainer's log");
    logs->add_option("-n,--lines", command_.lines, "So many lines (default: 20)")
        ->type_name("N")
        ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000}));
    logs->add_flag("-f,--follow", command_.follow, "Go on as it grows, until the run ends");
    logs->add_flag("--evaluator", command_.evaluator, "The evaluator's log instead");
    add("report", Action::kReport, "How a run went: a table and a small plot");
    CLI::App* const plot =
        add("plot", Action::kPlot, "Training and validation loss over the steps");
    plot->add_option("--metric", command_.metric,
                     "A metric of the evaluator instead, of every set that has it: accuracy")
        ->type_name("NAME");
    plot->add_option("--svg", command_.output, "Write a picture to this file; - is standard output")
        ->type_name("FILE");
  }

  void add_export() {
    CLI::App* const command =
        add("export", Action::kExport, "A checkpoint's tensors as one file for other programs");
    command->add_option("STEP", command_.which, "A step, latest or best")
        ->required()
        ->check(check_choice);
    command
        ->add_option("--format", command_.format,
                     "safetensors, or torch: what torch.load(weights_only=True) reads")
        ->type_name("FORMAT")
        ->check(CLI::IsMember({"safetensors", "torch"}))
        ->capture_default_str();
    command->add_option("--what", command_.what, "model, ema (averaged weights), optimizer or all")
        ->type_name("WHAT")
        ->check(CLI::IsMember({"model", "ema", "optimizer", "all"}))
        ->capture_default_str();
    command
        ->add_option("--output", command_.output,
                     "File to write (default: step-N.safetensors or .pt, here); must not be there")
        ->type_name("FILE");
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
    const std::string nearest = config::nearest_word(words.front(), names());
    throw CLI::ValidationError(
        "no command '" + printable(words.front()) + "'; " +
        (nearest.empty() ? "there are: " + command_names() : "did you mean '" + nearest + "'?"));
  }

  void check_combination() const {
    const std::string name = app_.get_subcommands().front()->get_name();
    const bool reads_directory = command_.action >= Action::kList;
    if (reads_directory && !command_.socket.empty())
      throw CLI::ValidationError(name + " reads a run directory: give --run-dir, not --socket");
    const bool text_only = command_.action == Action::kLogs || command_.action == Action::kReport ||
                           command_.action == Action::kPlot;
    if (text_only && command_.json) {
      throw CLI::ValidationError(name +
                                 " is for people; scripts find the same in the run "
                                 "directory: metrics/*.jsonl, logs/*.log");
    }
    if (command_.action == Action::kExplain && command_.step == 0)
      throw CLI::ValidationError("explain --step: the first step is 1");
    if (command_.action == Action::kSet && key_ != "lr")
      throw CLI::ValidationError("set: unknown key '" + printable(key_) + "'; there is: lr");
    if (command_.action == Action::kSet && !(std::isfinite(command_.lr) && command_.lr > 0))
      throw CLI::ValidationError("set lr: the learning rate must be a number above 0");
  }

  CLI::App app_;
  CommandLine command_;
  std::string key_;  // set KEY
};

}  // namespace

ParsedCommandLine parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                     std::ostream& err) {
  Parser parser;
  try {
    return {parser.parse(argc, argv), ExitCode::kDone};
  } catch (const CLI::CallForVersion&) {
    out << parser.version() << "\n";
    return {std::nullopt, ExitCode::kDone};
  } catch (const CLI::Success&) {  // --help
    out << parser.help();
    return {std::nullopt, ExitCode::kDone};
  } catch (const CLI::ParseError& mistake) {
    err << "stokerctl: " << mistake.what() << "; try stokerctl --help\n";
    return {std::nullopt, ExitCode::kUsage};
  }
}

}  // namespace stoker::ctl
