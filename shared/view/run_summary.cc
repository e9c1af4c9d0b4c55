#include "shared/view/run_summary.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/config/owned_config.h"
#include "shared/eval_metrics/metric_table.h"
#include "shared/metrics/metrics_record.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/lineage.h"
#include "shared/view/log_tail.h"

namespace stoker::view {
namespace {

namespace json = boost::json;
using control::TrainerState;
using run::RunState;

constexpr uint64_t kRecordBytes = 16 << 10, kOutcomeBytes = 64 << 10;

std::string_view last_line(std::string_view text) {
  text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 is 0
  if (text.empty()) return text;
  text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

// ISO 8601; empty: there is no such file.
std::string modified_at(const std::string& path) {
  const auto fd = default_file_system().open(path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0) return "";
  return to_iso8601(std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec) +
                    std::chrono::milliseconds(info.st_mtim.tv_nsec / 1'000'000));
}

void add_state(RunSummary& summary, const RunState& state, const run::RunLayout& layout) {
  switch (state.phase) {
    case RunState::Phase::kRunning:
      summary.is_running = true;
      summary.state = state.pause ? "paused" : "running";
      summary.health = state.pause ? Health::kAttention : Health::kGood;
      if (state.pause) summary.since = state.pause->since;
      return;
    case RunState::Phase::kEnded:
    case RunState::Phase::kPreempted: {
      summary.state = run::to_string(state.end->outcome);
      summary.has_ended = state.phase == RunState::Phase::kEnded;
      summary.health = state.end->outcome == run::RunOutcome::kFailed     ? Health::kBad
                       : state.end->outcome == run::RunOutcome::kFinished ? Health::kGood
                                                                          : Health::kAttention;
      summary.reason = valid_utf8(state.end->reason);
      summary.step = state.end->step;
      summary.since = modified_at(layout.exit_status_file());
      if (summary.since.empty()) summary.since = modified_at(layout.former_exit_status_file());
      return;
    }
    case RunState::Phase::kCrashed:
      summary.state = "crashed";
      summary.health = Health::kBad;
      summary.reason =
          "stokerd was killed, by the kernel if memory ran out (journalctl -k -g oom), or the "
          "machine "
          "crashed";
      summary.since = modified_at(layout.train_metrics_file());
      return;
    case RunState::Phase::kAbsent:
      return;
  }
}

// The value of a key on a separate line of the resolved configuration.
std::optional<uint64_t> find_count(std::string_view config, std::string_view key) {
  const size_t at = config.find(key);
  if (at == config.npos) return std::nullopt;
  std::string_view text = config.substr(at + key.size());
  text = text.substr(0, text.find('\n'));
  constexpr std::string_view kSteps = "steps: ";  // {epochs: 10, steps: 4690}
  if (text.starts_with('{') && text.find(kSteps) != text.npos)
    text.remove_prefix(text.find(kSteps) + kSteps.size());
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<metrics::TrainMetrics> last_record(const run::RunLayout& layout) {
  const std::string end = read_end(layout.train_metrics_file(), kRecordBytes);
  const auto record = metrics::parse_record(std::string(last_line(end)));
  auto parsed = record.ok() ? metrics::train_metrics_from(*record) : record.status();
  if (!parsed.ok()) return std::nullopt;
  return *std::move(parsed);
}

// Of the first record.
std::string start_of(const run::RunLayout& layout) {
  const auto fd = default_file_system().open(layout.train_metrics_file(), O_RDONLY | O_NONBLOCK);
  std::string line(kRecordBytes, '\0');
  const ssize_t size = fd.ok() ? ::pread(fd->get(), line.data(), line.size(), 0) : -1;
  line.resize(std::min(line.size(), line.find('\n')));
  const auto record = size > 0 ? metrics::parse_record(line) : Status(StatusCode::kNotFound, "");
  if (!record.ok()) return "";
  std::string time = record->find_text("wall_time").value_or("");
  return parse_iso8601(time) ? time : "";
}

run::EvaluatorState evaluator_of(const run::RunLayout& layout) {
  run::EvaluatorState state = run::read_evaluator_state(layout);
  state.reason = valid_utf8(state.reason);
  return state;
}

// A run that is well, but whose checkpoints nobody evaluates any more, needs attention.
void add_evaluator(RunSummary& summary) {
  using Phase = run::EvaluatorState::Phase;
  const bool is_broken =
      summary.evaluator.phase == Phase::kFailed || summary.evaluator.phase == Phase::kCrashed;
  if (!is_broken || summary.health != Health::kGood) return;
  if (!summary.is_running && steps_behind(summary) == 0) return;
  summary.health = Health::kAttention;
  summary.reason += (summary.reason.empty() ? "" : "; ") + std::string("the evaluator has ") +
                    std::string(run::to_string(summary.evaluator.phase)) + ": " +
                    summary.evaluator.reason;
  summary.next = "start stoker-eval again; its log: stokerctl logs --evaluator";
}

// As run::read_best().
std::optional<RunSummary::Best> best_of(const run::RunLayout& layout, const run::Lineage& lineage) {
  const auto text = read_file(layout.best_file(), run::kMaxBestBytes);
  auto parsed = text.ok() ? run::parse_best(*text, layout.best_file()) : text.status();
  if (!parsed.ok()) return std::nullopt;
  auto best = run::of_present_branch(*std::move(parsed), lineage);
  if (!best) return std::nullopt;
  RunSummary::Best found{.dataset = std::move(best->dataset),
                         .metric = std::move(best->metric),
                         .direction = "",
                         .value = best->value,
                         .step = best->step,
                         .manifest_sha256 = std::move(best->manifest_sha256)};
  const auto table = eval_metrics::read_metric_table(layout.metric_table_file());
  if (!table.ok()) return found;
  if (const auto* const row = table->find(found.metric))
    found.direction = to_string(row->direction);
  return found;
}

// The newest one that has a manifest. It is not parsed: it can have 16 MiB.
std::optional<RunSummary::Checkpoint> newest_checkpoint(const run::RunLayout& layout) {
  const auto names = list_directory(layout.checkpoints_dir());
  std::map<uint64_t, std::string, std::greater<>> found;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>())
    if (const auto step = checkpoint::CheckpointStore::parse_checkpoint_name(name))
      found.emplace(*step, name);
  for (const auto& [step, name] : found) {
    const std::string manifest =
        join_path(join_path(layout.checkpoints_dir(), name), checkpoint::kManifestName);
    std::string saved_at = modified_at(manifest);
    if (!saved_at.empty())
      return RunSummary::Checkpoint{.step = step, .saved_at = std::move(saved_at)};
  }
  return std::nullopt;
}

std::optional<uint64_t> newest_evaluated_step(const run::RunLayout& layout,
                                              const run::Lineage& lineage) {
  std::optional<uint64_t> newest;
  const std::string lines = read_end(layout.evaluation_outcomes_file(), kOutcomeBytes);
  run::EvaluationOutcomes outcomes;
  for (std::string_view rest = lines; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    outcomes.add_line(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto steps = outcomes.evaluated_steps(lineage);
  if (!steps.empty()) newest = *steps.rbegin();
  return newest;
}

std::string at_newest(const RunSummary& summary) {
  return summary.checkpoint ? "it resumes from step " + std::to_string(summary.checkpoint->step) +
                                  ", the newest checkpoint"
                            : "there is no checkpoint to resume from";
}

// What to do, if stokerd does not run.
std::string next_of(const RunSummary& summary, RunState::Phase phase) {
  switch (phase) {
    case RunState::Phase::kAbsent:
      return "start stokerd";
    case RunState::Phase::kRunning:
      return summary.state == "paused" ? "stokerctl resume" : "";
    case RunState::Phase::kPreempted:
      return "its launcher restarts it; " + at_newest(summary);
    case RunState::Phase::kCrashed:
      return "start stokerd again; " + at_newest(summary);
    case RunState::Phase::kEnded:
      break;
  }
  if (summary.state == "failed")
    return "fix the cause and start stokerd again; " + at_newest(summary);
  if (summary.state == "stopped") return "to continue, start stokerd again; " + at_newest(summary);
  return "";
}

json::value finite_or_null(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

}  // namespace

std::string_view to_string(Health health) {
  switch (health) {
    case Health::kGood:
      return "good";
    case Health::kAttention:
      return "attention";
    case Health::kBad:
      break;
  }
  return "bad";
}

Health health_of(TrainerState state) {
  switch (state) {
    case TrainerState::kStarting:
    case TrainerState::kTraining:
    case TrainerState::kSaving:
      return Health::kGood;
    case TrainerState::kPaused:
    case TrainerState::kStopping:
      return Health::kAttention;
    case TrainerState::kDegraded:
      break;
  }
  return Health::kBad;
}

run::Lineage read_lineage(const run::RunLayout& layout) {
  const auto text = read_file(layout.lineage_file(), run::kMaxLineageBytes);
  return text.ok() ? run::Lineage::parse(*text) : run::Lineage();
}

RunSummary read_summary(const run::RunLayout& layout, std::string name) {
  RunSummary summary;
  summary.name = std::move(name);
  summary.run_dir = valid_utf8(layout.root());
  const auto root =
      DirectoryRoot::open(layout.root(), PathLinks::kOfAnyUser);  // of the files below
  const RunState state = run::read_run_state(layout);
  add_state(summary, state, layout);
  summary.last_start = state.last_start;
  if (const auto last = last_record(layout)) {
    if (!state.end) summary.step = last->step;
    summary.loss = last->loss;
  }
  const auto config = read_file(layout.config_file(), config::kMaxConfigBytes);
  if (config.ok()) summary.max_steps = find_count(*config, "\n  max_steps: ").value_or(0);
  const run::Lineage lineage = read_lineage(layout);
  summary.best = best_of(layout, lineage);
  summary.checkpoint = newest_checkpoint(layout);
  summary.evaluated_step = newest_evaluated_step(layout, lineage);
  summary.started = start_of(layout);
  summary.evaluator = evaluator_of(layout);
  summary.next = next_of(summary, state.phase);
  add_evaluator(summary);
  return summary;
}

uint64_t steps_behind(const RunSummary& summary) {
  if (!summary.checkpoint) return 0;
  const uint64_t saved = summary.checkpoint->step;
  return saved - std::min(saved, summary.evaluated_step.value_or(0));
}

namespace {

// What the files do not say, or this program cannot read.
void add_results(RunSummary& summary, const control::TrainerStatus& status) {
  const bool is_training = status.state == TrainerState::kTraining ||
                           status.state == TrainerState::kSaving ||
                           status.state == TrainerState::kDegraded;
  summary.samples_per_second = is_training ? status.samples_per_second : 0;
  summary.eta_seconds = is_training && std::isfinite(status.eta_seconds) ? status.eta_seconds : 0;
  const auto& evaluator = status.evaluator;
  if (summary.run_dir.empty()) {
    summary.run_dir = valid_utf8(status.run_dir);
    summary.evaluator = run::EvaluatorState::of(evaluator.state, valid_utf8(evaluator.reason));
  }
  const uint64_t saved = status.checkpoint.last_saved_step;
  const bool has_saved = status.checkpoint.saved_total > 0 || saved > 0;
  if (has_saved && (!summary.checkpoint || summary.checkpoint->step < saved))
    summary.checkpoint = {.step = saved, .saved_at = ""};
  if (evaluator.last_evaluated_step > summary.evaluated_step.value_or(0))
    summary.evaluated_step = evaluator.last_evaluated_step;
  if (summary.best || !std::isfinite(evaluator.best_value)) return;
  const size_t slash = evaluator.best_metric.find('/');
  summary.best = {
      .dataset = evaluator.best_metric.substr(0, slash),
      .metric = slash == std::string::npos ? "" : evaluator.best_metric.substr(slash + 1),
      .direction = evaluator.best_direction,
      .value = evaluator.best_value,
      .step = evaluator.best_step,
      .manifest_sha256 = ""};
}

}  // namespace

void add_status(RunSummary& summary, const control::TrainerStatus& status) {
  summary.state = control::to_string(status.state);
  summary.step = status.step;
  summary.max_steps = status.max_steps;
  summary.loss = status.loss;
  summary.reason = valid_utf8(status.waiting_for);
  if (!summary.reason.empty()) summary.reason = "waiting for " + summary.reason;
  summary.health = health_of(status.state);
  add_results(summary, status);
  if (status.state != TrainerState::kPaused) summary.since.clear();
  summary.next = status.state == TrainerState::kPaused ? "stokerctl resume" : "";
  add_evaluator(summary);
  if (status.state != TrainerState::kDegraded) return;
  summary.reason = valid_utf8(status.checkpoint.last_error);
  const uint64_t saved = std::min(status.step, status.checkpoint.last_saved_step);
  summary.next =
      "fix the cause; " + std::to_string(status.step - saved) + " steps since the last checkpoint";
}

void add_no_answer(RunSummary& summary, std::string reason) {
  summary.state = "no answer";
  summary.health = Health::kAttention;
  summary.reason = valid_utf8(reason);
  summary.next = "read its log: stokerctl logs";
}

std::string to_json(const RunSummary& summary) {
  json::object object{{"name", summary.name},
                      {"run_dir", summary.run_dir},
                      {"state", summary.state},
                      {"health", to_string(summary.health)},
                      {"reason", summary.reason},
                      {"since", summary.since},
                      {"step", summary.step},
                      {"loss", finite_or_null(summary.loss)},
                      {"evaluated_step", nullptr},
                      {"next", summary.next},
                      {"started", summary.started},
                      {"samples_per_second", finite_or_null(summary.samples_per_second)},
                      {"eta_seconds", summary.eta_seconds}};
  if (summary.max_steps > 0) object["max_steps"] = summary.max_steps;
  if (summary.evaluated_step) object["evaluated_step"] = *summary.evaluated_step;
  object["evaluator"] = json::object{{"state", run::to_string(summary.evaluator.phase)},
                                     {"reason", summary.evaluator.reason},
                                     {"steps_behind", steps_behind(summary)}};
  if (const auto& best = summary.best)
    object["best"] =
        json::object{{"dataset", best->dataset},     {"metric", best->metric},
                     {"direction", best->direction}, {"value", finite_or_null(best->value)},
                     {"step", best->step},           {"manifest_sha256", best->manifest_sha256}};
  if (const auto& checkpoint = summary.checkpoint)
    object["checkpoint"] =
        json::object{{"step", checkpoint->step}, {"saved_at", checkpoint->saved_at}};
  if (const auto& start = summary.last_start)
    object["last_start"] = json::object{{"time", valid_utf8(start->time)},
                                        {"state", run::to_string(start->end.outcome)},
                                        {"reason", valid_utf8(start->end.reason)},
                                        {"exit_code", start->end.exit_code}};
  return json::serialize(object);
}

}  // namespace stoker::view
