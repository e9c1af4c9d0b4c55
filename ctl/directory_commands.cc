#include "ctl/directory_commands.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "ctl/checkpoint_diff.h"
#include "ctl/checkpoint_export.h"
#include "ctl/checkpoint_list.h"
#include "ctl/class_report.h"
#include "ctl/html_report.h"
#include "ctl/live_status.h"
#include "ctl/plot.h"
#include "ctl/plot_file.h"
#include "ctl/run_comparison.h"
#include "ctl/run_locator.h"
#include "ctl/run_report.h"
#include "ctl/status_format.h"
#include "ctl/terminal.h"
#include "ctl/text_format.h"
#include "ctl/top_view.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/readable_format.h"
#include "shared/base/status.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/store.h"
#include "shared/config/load_config.h"
#include "shared/run/run_state.h"
#include "shared/view/log_tail.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {
namespace {

using checkpoint::CheckpointEntry;

struct VerificationResult {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  size_t files = 0;
  std::string error;  // contains the path of the file; empty: valid
};

struct VerifyOptions {
  std::string selector = "latest";  // in the form that select_checkpoint() accepts
  bool all = false;                 // verify all checkpoints instead
  std::function<void(const checkpoint::CheckpointEntry&)> on_begin = {};
  checkpoint::OnBytes on_bytes = {};
  std::function<void(const VerificationResult&)> on_checked = {};
};

Result<std::vector<CheckpointEntry>> select_checkpoints(const run::RunLayout& layout,
                                                        const VerifyOptions& request) {
  if (request.all) return all_checkpoints(layout);
  STOKER_ASSIGN_OR_RETURN(CheckpointEntry entry, select_checkpoint(layout, request.selector));
  return std::vector{std::move(entry)};
}

// Verifies every byte against the checksums of the commit. kNotFound: no such checkpoint, or none
// at all; kBusy: locked exclusively; kIoError, kPermission. Corruption is part of the result and
// not an error.
Result<std::vector<VerificationResult>> verify_checkpoints(const run::RunLayout& layout,
                                                           const VerifyOptions& request) {
  STOKER_ASSIGN_OR_RETURN(const auto selected, select_checkpoints(layout, request));
  std::vector<VerificationResult> results;
  for (const CheckpointEntry& entry : selected) {
    VerificationResult result{.step = entry.step, .path = entry.path};
    if (request.on_begin) request.on_begin(entry);
    const auto verified = checkpoint::CheckpointStore::open_verified(entry.path, request.on_bytes);
    if (verified.ok()) {
      result.files = verified->manifest().files.size();
      for (const auto& file : verified->manifest().files) result.bytes += file.bytes;
    } else if (verified.status().code() == StatusCode::kCorrupt) {
      result.error = verified.status().message();
    } else if (request.all && (verified.status().code() == StatusCode::kNotFound ||
                               verified.status().code() == StatusCode::kBusy)) {
      continue;  // deleted meanwhile, or being deleted
    } else {
      return verified.status();
    }
    if (request.on_checked) request.on_checked(result);
    results.push_back(std::move(result));
  }
  return results;
}

bool any_corrupt(const std::vector<VerificationResult>& results) {
  return std::any_of(results.begin(), results.end(),
                     [](const VerificationResult& result) { return !result.error.empty(); });
}

// One line.
std::string render_verification(const VerificationResult& results) {
  const std::string step = "step " + format_count(results.step) + ": ";
  if (!results.error.empty()) return step + "CORRUPT: " + printable(results.error) + "\n";
  return step + "OK (" + std::to_string(results.files) + " files and the manifest, " +
         format_bytes(results.bytes) + ")\n";
}

// One JSON object on one line, without a newline.
std::string to_json(const std::vector<VerificationResult>& results) {
  namespace json = boost::json;
  json::array list;
  for (const VerificationResult& result : results) {
    json::object fields{{"step", result.step}, {"path", result.path}, {"ok", result.error.empty()}};
    if (result.error.empty()) {
      fields["bytes"] = result.bytes;
    } else {
      fields["error"] = result.error;
    }
    list.push_back(std::move(fields));
  }
  return json::serialize(json::object{{"ok", !any_corrupt(results)}, {"checkpoints", list}});
}

constexpr int kPlotRows = 20;

ExitCode show(const Result<std::string>& text, const Console& console) {
  if (!text.ok()) return console.fail(text.status(), exit_code_for_reading(text.status()));
  console.out << *text;
  return ExitCode::kSuccess;
}

// Whether a process can still append to the log. A preempted run is started again.
bool is_written_to(const run::RunLayout& layout, bool evaluator) {
  if (!evaluator) {
    const auto phase = run::read_run_state(layout).phase;
    return phase == run::RunState::Phase::kRunning || phase == run::RunState::Phase::kPreempted;
  }
  const auto locked = is_locked(layout.eval_lock_file());
  return locked.ok() && *locked;
}

// The ranks that have a log: the chief, and those with a folder.
std::vector<int> find_ranks(const run::RunLayout& layout) {
  std::vector<int> ranks{0};
  std::error_code error;
  for (int rank = 1; std::filesystem::is_directory(layout.rank_dir(rank), error); ++rank)
    ranks.push_back(rank);
  return ranks;
}

ExitCode fail_log(const Status& opened, const run::RunLayout& layout, bool evaluator, int rank,
                  const Console& console) {
  const Status status =
      opened.code() == StatusCode::kNotFound
          ? view::no_log(layout, evaluator, rank, format_run_state(run::read_run_state(layout)))
          : opened;
  return console.fail(status, exit_code_for_reading(status));
}

// Logs that are followed together: lines that appear between two reads are in the order of their times.
struct RankLog {
  int rank = 0;
  view::LogTail tail;
};

// With the colors of the levels on a terminal.
void print_log(const Console& console, std::string_view text) {
  if (!console.style.color) return console.print_lines(text);
  for (; !text.empty(); text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1)) {
    const std::string line = printable_lines(text.substr(0, text.find('\n')));
    const std::string_view color = log_color(line);
    if (color.empty())
      console.out << line;
    else
      console.out << "\x1b[" << color << "m" << line << "\x1b[0m";
    if (text.find('\n') != text.npos) console.out << "\n";
  }
}

// The last lines of a text that ends with a line break and has no empty line.
std::string_view last_lines(std::string_view text, uint64_t lines) {
  size_t begin = text.size();
  while (begin > 0 && lines-- > 0) begin = text.rfind('\n', begin - 2) + 1;  // npos + 1 is 0
  return text.substr(begin);
}

// `-n` counts lines of all logs together, as journalctl does.
ExitCode show_logs_of_ranks(const run::RunLayout& layout, const CommandLine& command,
                            const Console& console, std::chrono::milliseconds interval) {
  std::vector<RankLog> logs;
  for (const int rank : find_ranks(layout)) {
    auto tail = view::LogTail::open(view::log_path(layout, false, rank),
                                    command.lines + 1);  // the last can be incomplete
    if (tail.ok())
      logs.push_back({.rank = rank, .tail = *std::move(tail)});
    else if (rank == 0)
      return fail_log(tail.status(), layout, false, 0, console);
  }
  bool is_first = true;
  bool may_grow = true;
  bool has_more = true;
  while ((may_grow || has_more) && console.out.good()) {
    if (!has_more) {
      console.out.flush();
      std::this_thread::sleep_for(interval);
    }
    may_grow = command.follow && is_written_to(layout, false);
    has_more = false;
    std::vector<view::LogPart> parts;
    for (RankLog& log : logs) {
      view::LogPart& part = parts.emplace_back();
      part.source = "rank " + std::to_string(log.rank);
      bool is_read = false;
      while (!is_read) {
        const auto text = log.tail.read_more();
        if (!text.ok()) return console.fail(text.status(), exit_code_for_reading(text.status()));
        has_more = has_more || !text->empty();
        part.text += *text;
        is_read = text->empty() || !is_first;  // at first all that there is
      }
    }
    const std::string merged = view::merge_by_time(parts);
    print_log(console, is_first ? last_lines(merged, command.lines) : merged);
    is_first = false;
  }
  return ExitCode::kSuccess;
}

}  // namespace

ExitCode exit_code_for_reading(const Status& status) {
  return status.code() == StatusCode::kCorrupt ? ExitCode::kIoError : exit_code_for(status);
}

ExitCode show_list(const run::RunLayout& layout, const CommandLine& command,
                   const Console& console) {
  const auto list = list_checkpoints(layout);
  if (!list.ok()) return console.fail(list.status(), exit_code_for_reading(list.status()));
  if (command.json)
    console.print_json(to_json(*list));
  else
    console.out << render_list(*list, console.style, system_clock().wall());
  return ExitCode::kSuccess;
}

ExitCode show_verification(const run::RunLayout& layout, const CommandLine& command,
                           const Console& console) {
  std::optional<Progress> progress;
  VerifyOptions request{.selector = command.selector, .all = command.all};
  if (!command.json) {
    request.on_begin = [&](const checkpoint::CheckpointEntry& entry) {
      progress.emplace(console, system_clock(), "verifying step " + format_count(entry.step),
                       bytes_on_disk(entry.path));
    };
    request.on_bytes = [&](uint64_t bytes) { progress->add(bytes); };
    request.on_checked = [&](const VerificationResult& result) {
      progress.reset();
      console.out << render_verification(result) << std::flush;
    };
  }
  const auto results = verify_checkpoints(layout, request);
  progress.reset();
  if (!results.ok()) return console.fail(results.status(), exit_code_for(results.status()));
  if (command.json) console.print_json(to_json(*results));
  return any_corrupt(*results) ? ExitCode::kDataError : ExitCode::kSuccess;
}

ExitCode show_diff(const run::RunLayout& layout, const CommandLine& command,
                   const Console& console) {
  constexpr size_t kMaxTensors = 20;
  const auto diff = diff_checkpoints(layout, command.selector, command.second_selector);
  if (!diff.ok()) return console.fail(diff.status(), exit_code_for(diff.status()));
  if (command.json)
    console.print_json(to_json(*diff));
  else
    console.out << render_diff(*diff, command.all ? 0 : kMaxTensors, console.style);
  return ExitCode::kSuccess;
}

// The best checkpoint is that of the best evaluated weights, which eval.use_ema of the evaluation has selected.
ExportContent default_content(const run::RunLayout& layout, const std::string& selector) {
  if (selector != "best") return ExportContent::kModel;
  std::optional<bool> maybe_use_ema;
  if (const auto best = run::read_best(layout); best.ok())
    if (const auto result =
            run::find_eval_result(layout.eval_dir(), best->step, best->manifest_sha256))
      maybe_use_ema = result->maybe_use_ema;
  if (!maybe_use_ema)
    if (const auto config = config::load_config(layout.config_file(), {}); config.ok())
      maybe_use_ema = config->eval.use_ema;
  return maybe_use_ema.value_or(false) ? ExportContent::kEma : ExportContent::kModel;
}

ExitCode write_export(const run::RunLayout& layout, const CommandLine& command,
                      const Console& console) {
  const ExportOptions request{
      .selector = command.selector,
      .format = command.format,
      .content = command.content ? *command.content : default_content(layout, command.selector),
      .merge = command.merge,
      .output = command.output,
      .dry_run = command.dry_run};
  const auto exported = export_checkpoint(layout, request, console, system_clock());
  if (!exported.ok()) return console.fail(exported.status(), exit_code_for(exported.status()));
  if (command.json)
    console.print_json(to_json(*exported));
  else
    console.out << render_export(*exported, request.content);
  return ExitCode::kSuccess;
}

ExitCode show_classes(const run::RunLayout& layout, const CommandLine& command,
                      const Console& console) {
  constexpr size_t kMaxConfusedPairs = 20;
  const auto report = report_classes(layout, command.selector, command.dataset);
  if (!report.ok()) return console.fail(report.status(), exit_code_for_reading(report.status()));
  if (command.json)
    console.print_json(to_json(*report));
  else
    console.out << render_classes(*report, kMaxConfusedPairs, console.style);
  return ExitCode::kSuccess;
}

ExitCode show_logs(const run::RunLayout& layout, const CommandLine& command, const Console& console,
                   std::chrono::milliseconds interval) {
  if (command.all) return show_logs_of_ranks(layout, command, console, interval);
  const int rank = command.rank.value_or(0);
  auto tail = view::LogTail::open(view::log_path(layout, command.evaluator, rank), command.lines);
  if (!tail.ok()) return fail_log(tail.status(), layout, command.evaluator, rank, console);
  // Checked before the last read, so that everything written before the end is printed.
  bool may_grow = true;
  bool has_more = true;
  while ((may_grow || has_more) && console.out.good()) {
    if (!has_more) {
      console.out.flush();
      std::this_thread::sleep_for(interval);
    }
    may_grow = command.follow && is_written_to(layout, command.evaluator);
    const auto text = tail->read_more();
    if (!text.ok()) return console.fail(text.status(), exit_code_for_reading(text.status()));
    print_log(console, *text);
    has_more = !text->empty();
  }
  const auto rest = tail->read_rest();
  if (!rest.ok()) return console.fail(rest.status(), exit_code_for_reading(rest.status()));
  print_log(console, *rest);
  return ExitCode::kSuccess;
}

namespace {

ExitCode report_written(const std::string& path, const Status& written, const Console& console) {
  if (!written.ok()) return console.fail(written, exit_code_for_reading(written));
  console.out << printable(path) << "\n";
  return ExitCode::kSuccess;
}

ExitCode write_text(const std::string& path, const std::string& text, const Console& console) {
  if (path == "-") return show(text, console);
  return report_written(path, write_file_atomically(default_file_system(), path, text), console);
}

void note_unread(const RunHistory& history, const Console& console) {
  if (history.unread_evals > 0)
    console.note(history.layout.root() + ": the newest " + std::to_string(run::kMaxListedResults) +
                 " evaluations are shown, " + std::to_string(history.unread_evals) +
                 " older ones are not");
}

// The curves of one run; with several runs, each name begins with that of its run.
Result<std::vector<Curve>> curves_of(const run::RunLayout& layout, const std::string& metric,
                                     bool has_others, const Console& console) {
  STOKER_ASSIGN_OR_RETURN(const RunHistory history, read_history(layout));
  note_unread(history, console);
  auto curves = metric.empty() ? loss_curves(history) : metric_curves(history, metric);
  if (!has_others || !curves.ok()) return curves;
  const std::string name = view::RunView(layout).name();
  for (Curve& curve : *curves) curve.name = name + " " + curve.name;
  return curves;
}

}  // namespace

ExitCode show_report(const std::vector<run::RunLayout>& runs, const CommandLine& command,
                     const Console& console) {
  if (!command.html.empty()) {
    const auto page = render_html_report(runs);
    if (!page.ok()) return show(page.status(), console);
    return write_text(command.html, *page, console);
  }
  if (runs.size() > 1) return show(render_comparison(runs, console.style), console);
  const auto history = read_history(runs.front());
  if (!history.ok()) return show(history.status(), console);
  note_unread(*history, console);
  return show(render_report(*history, console.style), console);
}

ExitCode show_candidates(const run::RunLayout& layout, const CommandLine& command,
                         const Console& console) {
  std::vector<std::string> words;
  if (command.candidates == "steps") {
    words = {"latest", "best"};
    const auto checkpoints = all_checkpoints(layout);
    for (const CheckpointEntry& entry :
         checkpoints.ok() ? *checkpoints : std::vector<CheckpointEntry>())
      words.push_back(std::to_string(entry.step));
  } else if (command.candidates == "metrics") {
    const auto history = read_history(layout);
    std::set<std::string> names;
    for (const run::EvalResult& eval :
         history.ok() ? history->evals : std::vector<run::EvalResult>())
      for (const run::DatasetResult& dataset : eval.datasets)
        for (const auto& [name, value] : dataset.metrics) names.insert(name);
    if (history.ok() && !history->train.empty())
      for (const auto& [name, value] : history->train.back().metrics) names.insert(name);
    words.assign(names.begin(), names.end());
  } else if (const auto config = config::load_config(layout.config_file(), {}); config.ok()) {
    for (const config::Setting& setting : config::all_settings(*config))
      if (command.candidates == "keys" || setting.is_live) words.push_back(setting.key);
  }
  for (const std::string& word : words) console.out << printable(word) << "\n";
  return ExitCode::kSuccess;
}

ExitCode show_runs(const CommandLine& command, const Console& console) {
  const auto names = list_directory(command.directory);
  if (!names.ok()) return show(names.status(), console);
  TextTable table({{.title = "run", .left = true, .can_cut = true},
                   {.title = "state", .left = true},
                   {.title = "since", .can_drop = true},
                   {.title = "step"},
                   {.title = "loss", .can_drop = true},
                   {.title = "best", .left = true},
                   {.title = "reason", .left = true, .can_cut = true}});
  std::string list;
  uint64_t unsearched = 0;
  for (const view::RunSummary& run :
       read_summaries(view::find_runs(command.directory, view::kMaxRuns, &unsearched))) {
    table.add({printable(run.name), colored_state(run, console.style), format_age(run.since),
               format_count(run.step), std::isfinite(run.loss) ? format_value(run.loss) : "-",
               format_best(run), printable(run.reason)});
    list += (list.empty() ? "" : ",") + to_json(run);
  }
  if (unsearched > 0)
    console.note(std::to_string(unsearched) + (unsearched == 1 ? " folder" : " folders") +
                 " not searched to the end: their owner has too many in " + command.directory);
  if (list.empty() && !command.json)
    return console.fail(Status(StatusCode::kNotFound, printable(command.directory) +
                                                          ": no run directory in it, at most "
                                                          "three levels below it"),
                        ExitCode::kConfiguration);
  if (command.json)
    console.print_json("[" + list + "]");
  else
    console.out << table.render(console.style);
  return ExitCode::kSuccess;
}

ExitCode show_plot(const std::vector<run::RunLayout>& runs, const CommandLine& command,
                   const Console& console) {
  std::vector<Curve> all;
  for (const run::RunLayout& layout : runs) {
    auto curves = curves_of(layout, command.metric, runs.size() > 1, console);
    if (!curves.ok()) return show(curves.status(), console);
    all.insert(all.end(), curves->begin(), curves->end());
  }
  if (command.output.empty())
    return show(render_plot(all, "steps", kPlotRows, console.style), console);
  const std::string svg = render_svg(all, "steps");
  if (command.output == "-") return show(svg, console);
  return report_written(command.output, write_plot(svg, command.output), console);
}

}  // namespace stoker::ctl
