#include "evaluator/evaluation_loop.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/run_program.h"

namespace stoker::evaluator {
namespace {

using std::chrono::nanoseconds;
constexpr uint64_t kMaxManifest = 64ull << 20;
constexpr auto kBusyDelay = std::chrono::seconds(10);
constexpr auto kMaxBusyTime = std::chrono::minutes(10);  // once no more checkpoints are expected

std::string manifest_sha256_of(const std::string& checkpoint_path) {
  const auto text = read_file(join_path(checkpoint_path, "manifest.json"), kMaxManifest);
  return text.ok() ? sha256_hex(*text) : std::string();
}

bool is_deleted(const std::string& checkpoint_path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(checkpoint_path, error);
  return !exists && !error;
}

// Otherwise what was found corrupt is not the checkpoint.
bool is_corrupt(const std::string& checkpoint_path) {
  return checkpoint::CheckpointStore::open_verified(checkpoint_path).status().code() ==
         StatusCode::kCorrupt;
}

nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

// What decides about checkpoints: eval.monitor and those of checkpoint.monitor.
std::vector<run::Monitor> monitors_of(const config::Config& config, const run::Monitor& monitor,
                                      const eval_metrics::MetricTable& table) {
  std::vector<run::Monitor> monitors = {monitor};
  for (const std::string& metric : config.checkpoint.monitor) {
    auto other = run::make_monitor(config.eval, table, "checkpoint.monitor", metric);
    if (other.ok() && other->to_text() != monitor.to_text()) monitors.push_back(*std::move(other));
  }
  return monitors;
}

// 1 s, 4 s, 16 s, … up to 256 s.
nanoseconds backoff_time(int attempts) {
  return std::chrono::seconds(1 << std::min(2 * (attempts - 1), 8));
}

}  // namespace

EvaluationLoop::EvaluationLoop(FileSystem& files, Clock& clock, const config::Config& config,
                               eval_metrics::MetricTable table, const run::RunLayout& layout,
                               Evaluate evaluate)
    : files_(files),
      clock_(clock),
      config_(config),
      table_(std::move(table)),
      layout_(layout),
      policy_(run::make_selection_policy(config.eval)),
      evaluate_(std::move(evaluate)),
      start_time_(clock.monotonic()) {}

Status EvaluationLoop::open() {
  STOKER_RETURN_IF_ERROR(make_directories(files_, layout_.eval_dir()));
  STOKER_RETURN_IF_ERROR(remove_temporary_files(files_, layout_.eval_dir()));
  STOKER_RETURN_IF_ERROR(make_directories(files_, layout_.evaluation_requests_dir()));
  STOKER_ASSIGN_OR_RETURN(outcome_log_,
                          OutcomeLog::open(files_, layout_.evaluation_outcomes_file()));
  attempt_counts_ = AttemptCounts::open(files_, layout_.attempts_file());
  STOKER_ASSIGN_OR_RETURN(early_stopping_, run::make_early_stopping(config_.eval, table_));
  STOKER_ASSIGN_OR_RETURN(results_, ResultRecorder::open(files_, layout_, early_stopping_.monitor,
                                                         table_, config_.metrics.tensorboard));
  // A crash came between the result and its outcome. The checkpoint itself might have been deleted
  // since.
  drop_early_stop();
  for (const auto& [step, manifest] : results_->found()) {
    if (outcome_log_->find(step, manifest) != nullptr) continue;
    request_early_stop(step, manifest);
    STOKER_RETURN_IF_ERROR(record_outcome(Outcome::kEvaluated, {{step, ""}, {}}, manifest, {}));
  }
  return {};
}

// ---- Selection

run::EvaluationState EvaluationLoop::state_of(const checkpoint::CheckpointEntry& entry) const {
  const EvaluationOutcome* const known =
      outcome_log_->find(entry.step, manifest_sha256_of(entry.path));
  if (known == nullptr) return run::EvaluationState::kPending;
  return known->outcome == Outcome::kEvaluated ? run::EvaluationState::kEvaluated
                                               : run::EvaluationState::kFailed;
}

std::vector<checkpoint::CheckpointEntry> EvaluationLoop::pending(
    const std::vector<checkpoint::CheckpointEntry>& entries, const LoopState& loop_state) const {
  std::map<uint64_t, checkpoint::CheckpointEntry> by_step;
  run::EvaluationQueue queue{.evaluated_steps = outcome_log_->evaluated_steps(results_->lineage()),
                             .run_ended = loop_state.run_ended};
  for (const auto& entry : entries) {
    queue.steps.push_back(entry.step);
    by_step.emplace(entry.step, entry);
  }
  queue.state = [&](uint64_t step) { return state_of(by_step.at(step)); };
  std::vector<checkpoint::CheckpointEntry> due;
  for (const uint64_t step : run::pending_steps(queue, policy_)) due.push_back(by_step.at(step));
  return due;
}

Result<std::vector<EvaluationLoop::Task>> EvaluationLoop::requested(
    const run::EvaluationRequests& requests,
    const std::vector<checkpoint::CheckpointEntry>& entries) {
  for (const auto& invalid : requests.invalid) {
    if (kept_requests_.contains(invalid.path)) continue;
    log_warn("evaluation request invalid", {{"path", invalid.path}, {"error", invalid.reason}});
    remove_request(invalid.path);
  }
  std::vector<Task> tasks;
  for (const run::EvaluationRequest& request : requests.pending) {
    if (outcome_log_->has_request(request.id)) {  // a crash came before the removal
      if (!kept_requests_.contains(request.path)) remove_request(request.path);
      continue;
    }
    const auto entry = std::ranges::find(entries, request.step, &checkpoint::CheckpointEntry::step);
    if (entry != entries.end()) {
      tasks.push_back({*entry, request});
    } else {
      STOKER_RETURN_IF_ERROR(reject_request(request, "no checkpoint of step " +
                                                         std::to_string(request.step) +
                                                         "; it was deleted, or never existed"));
    }
  }
  return tasks;
}

Status EvaluationLoop::reject_request(const run::EvaluationRequest& request,
                                      const std::string& reason) {
  log_warn("evaluation request invalid", {{"path", request.path}, {"error", reason}});
  STOKER_RETURN_IF_ERROR(outcome_log_->append({.step = request.step,
                                               .outcome = Outcome::kSuperseded,
                                               .reason = reason,
                                               .request_id = request.id},
                                              to_iso8601(clock_.wall())));
  remove_request(request.path);
  return {};
}

void EvaluationLoop::remove_request(const std::string& path) {
  const Status removed = files_.remove_file(path);
  if (removed.ok() || removed.code() == StatusCode::kNotFound) return;
  kept_requests_.insert(path);
  log_warn("evaluation request not removed", {{"path", path}, {"error", removed.message()}});
}

EvaluationLoop::LoopResult EvaluationLoop::wait_time(const Task& task,
                                                     const LoopState& loop_state) const {
  const checkpoint::CheckpointEntry& entry = task.entry;
  LoopResult wait{.maybe_due_at = nanoseconds{0}, .waiting_for = ""};
  const auto delay_until = [&](nanoseconds time, std::string why) {
    if (time <= *wait.maybe_due_at) return;
    wait.maybe_due_at = time;
    wait.waiting_for = std::move(why);
  };
  if (const auto retry = not_before_.find(entry.path); retry != not_before_.end())
    delay_until(retry->second, "the next attempt at step " + std::to_string(entry.step));
  if (!loop_state.paced || loop_state.run_ended || task.is_requested()) return wait;
  if (config_.eval.start_delay_seconds > 0)
    delay_until(start_time_ + to_nanoseconds(config_.eval.start_delay_seconds),
                "eval.start_delay_seconds");
  if (last_evaluation_start_ && config_.eval.throttle_seconds > 0)
    delay_until(*last_evaluation_start_ + to_nanoseconds(config_.eval.throttle_seconds),
                "eval.throttle_seconds");
  return wait;
}

// More checkpoints up to `until` can still be pending.
bool EvaluationLoop::has_reached_step(const std::vector<checkpoint::CheckpointEntry>& due,
                                      uint64_t until) const {
  return until > 0 && newest_resolved_ >= until &&
         std::ranges::none_of(due, [&](const auto& entry) { return entry.step <= until; });
}

Status EvaluationLoop::check_busy(const std::vector<Task>& tasks) const {
  if (!last_checkpoint_time_) return {};
  for (const Task& task : tasks) {
    const auto busy = busy_.find(task.entry.path);
    if (busy == busy_.end() ||
        clock_.monotonic() - std::max(busy->second.since, *last_checkpoint_time_) < kMaxBusyTime)
      continue;
    return Status(StatusCode::kBusy, busy->second.reason + ", for " +
                                         std::to_string(kMaxBusyTime.count()) +
                                         " minutes; end that, then start stoker-eval again");
  }
  return {};
}

Result<EvaluationLoop::LoopResult> EvaluationLoop::evaluate_due(const LoopState& loop_state,
                                                                std::stop_token stop) {
  if (loop_state.paced && !loop_state.run_ended)
    last_checkpoint_time_.reset();
  else if (!last_checkpoint_time_)
    last_checkpoint_time_ = clock_.monotonic();
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), files_);
  int num_considered = 0;
  for (; !stop.stop_requested(); ++num_considered) {
    STOKER_RETURN_IF_ERROR(update_lineage());
    // Before the checkpoints, because a request follows its checkpoint.
    STOKER_ASSIGN_OR_RETURN(const auto requests, run::read_evaluation_requests(layout_));
    STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
    std::vector<uint64_t> steps;
    for (const auto& entry : entries) steps.push_back(entry.step);
    attempt_counts_->retain_only(steps);
    if (!entries.empty() && state_of(entries.back()) != run::EvaluationState::kPending)
      newest_resolved_ = std::max(newest_resolved_, entries.back().step);
    STOKER_ASSIGN_OR_RETURN(std::vector<Task> tasks, requested(requests, entries));
    const auto due = pending(entries, loop_state);
    const bool has_reached = has_reached_step(due, loop_state.until);
    if (has_reached && tasks.empty()) return LoopResult{.num_considered = num_considered};
    for (const auto& entry : due)
      if (!has_reached) tasks.push_back({entry, {}});
    std::optional<Task> next;
    LoopResult soonest;
    for (const Task& task : tasks) {
      const LoopResult wait = wait_time(task, loop_state);
      if (*wait.maybe_due_at <= clock_.monotonic()) {
        next = task;
        break;
      }
      if (!soonest.maybe_due_at || *wait.maybe_due_at < *soonest.maybe_due_at) soonest = wait;
    }
    soonest.num_considered = num_considered;
    if (!next) {
      STOKER_RETURN_IF_ERROR(check_busy(tasks));
      return soonest;
    }
    STOKER_RETURN_IF_ERROR(evaluate_checkpoint(*next, stop));
  }
  return LoopResult{.maybe_due_at = {}, .waiting_for = "", .num_considered = num_considered};
}

// ---- Evaluation of one checkpoint

Status EvaluationLoop::evaluate_checkpoint(const Task& task, std::stop_token stop) {
  const checkpoint::CheckpointEntry& entry = task.entry;
  last_evaluation_start_ = clock_.monotonic();
  const auto checkpoint = checkpoint::CheckpointStore::open_verified(entry.path);
  const std::string manifest =
      checkpoint.ok() ? checkpoint->manifest_sha256() : manifest_sha256_of(entry.path);
  if (const int previous = attempt_counts_->count(entry.step, manifest);
      previous >= config_.eval.max_attempts) {
    return record_outcome(
        Outcome::kFailed, task, manifest,
        Status(StatusCode::kInternal, "the evaluator crashed " + std::to_string(previous) +
                                          " times on this checkpoint: killed, or out of memory"));
  }
  attempt_counts_->begin(entry.step, manifest);
  if (!checkpoint.ok()) return handle_failure(task, manifest, checkpoint.status());
  auto evaluated = evaluate_or_reuse(task, *checkpoint, stop);
  if (!evaluated.ok()) return handle_failure(task, manifest, evaluated.status());
  STOKER_RETURN_IF_ERROR(update_lineage());  // an evaluation can take hours
  if (const Status recorded = results_->record(evaluated->result, evaluated->artifacts);
      !recorded.ok()) {
    if (recorded.code() == StatusCode::kInvalidArgument) return recorded;
    return handle_failure(task, manifest, recorded);
  }
  warn_of_nonfinite(evaluated->result);
  handle_result(evaluated->result, entry.path, stop);
  // A request to evaluate an earlier checkpoint does not end the run.
  if (!task.is_requested()) request_early_stop(entry.step, manifest);
  return handle_failure(task, manifest, {});
}

Result<Evaluation> EvaluationLoop::evaluate_or_reuse(
    const Task& task, const checkpoint::VerifiedCheckpoint& checkpoint, std::stop_token stop) {
  const uint64_t step = task.entry.step;
  auto result = !task.is_requested() ? results_->find_recorded(step, checkpoint.manifest_sha256())
                                     : std::nullopt;
  if (result) {
    auto artifacts = std::vector<Artifact>();
    for (const run::DatasetResult& dataset : result->datasets)
      for (Artifact& view : read_artifacts(layout_, step, dataset.dataset))
        artifacts.push_back(std::move(view));
    return Evaluation{*std::move(result), std::move(artifacts)};
  }
  if (!task.is_requested())
    log_info("evaluation started", {{"step", step}});
  else
    log_info("evaluation started", {{"step", step}, {"request_id", task.request.id}});
  return evaluate_(checkpoint, stop);
}

void EvaluationLoop::handle_result(const run::EvalResult& result,
                                   const std::string& checkpoint_path, std::stop_token stop) {
  const bool is_best =
      results_->best() && results_->best()->manifest_sha256 == result.manifest_sha256;
  if (is_best && !config_.eval.on_best_command.empty()) {
    std::vector<std::string> command = config_.eval.on_best_command;
    command.push_back(checkpoint_path);
    const Status ran = run_program(command, "",
                                   std::chrono::duration_cast<std::chrono::milliseconds>(
                                       to_nanoseconds(config_.eval.timeout_seconds)),
                                   stop);
    if (ran.ok()) {
      log_info("best-checkpoint command finished", {{"step", result.step}});
    } else {
      log_error("best-checkpoint command failed",
                {{"step", result.step}, {"error", ran.message()}});
    }
  }
}

void EvaluationLoop::warn_of_nonfinite(const run::EvalResult& result) const {
  for (const run::Monitor& monitor : monitors_of(config_, early_stopping_.monitor, table_)) {
    const auto value = run::monitored_value(result, monitor);
    if (!value.ok() || std::isfinite(*value)) continue;
    log_warn("monitored metric not finite",
             {{"step", result.step},
              {"metric", monitor.to_text()},
              {"value", std::isnan(*value) ? std::nan("") : *value},  // without a sign
              {"hint",
               "this checkpoint is not compared with others: it is not the best one, and does not "
               "count for early stopping"}});
  }
}

Status EvaluationLoop::update_lineage() {
  STOKER_ASSIGN_OR_RETURN(const bool has_left_branch, results_->update_lineage());
  if (has_left_branch) drop_early_stop();
  return {};
}

// That of a branch that the run has left. stokerd ignores it.
void EvaluationLoop::drop_early_stop() {
  const auto request = run::read_early_stop_request(layout_.early_stop_file());
  if (!request.ok() || run::applies(*request, results_->lineage())) return;
  const Status removed = files_.remove_file(layout_.early_stop_file());
  if (!removed.ok())
    log_warn("file write failed",
             {{"path", layout_.early_stop_file()}, {"error", removed.to_string()}});
}

void EvaluationLoop::request_early_stop(uint64_t step, const std::string& manifest_sha256) {
  if (!early_stopping_.is_on() || !results_->lineage().contains(step, manifest_sha256)) return;
  const auto reason = early_stopping_.stop_reason(results_->history(step));
  if (!reason) return;
  const Status written = write_file_atomically(
      files_, layout_.early_stop_file(),
      to_json(run::EarlyStopRequest{step, early_stopping_.to_text(), *reason, manifest_sha256}));
  if (written.ok()) {
    log_info("early stop requested", {{"reason", *reason}});
  } else {
    log_error("early stop request not written", {{"error", written.to_string()}});
  }
}

// ---- Outcomes

Status EvaluationLoop::failures() const {
  if (failures_.count == 0) return {};
  return Status(failures_.code,
                std::to_string(failures_.count) + " of the evaluations failed, the first at step " +
                    std::to_string(failures_.first_step) + ": " + failures_.first_reason + "; " +
                    layout_.evaluation_outcomes_file() + " has the reasons");
}

// A defect before other faults, and these before what is corrupt.
void EvaluationLoop::Failures::add(uint64_t step, const Status& error) {
  if (++count == 1) {
    first_step = step;
    first_reason = error.message();
    code = error.code();
  }
  if (error.code() == StatusCode::kInternal || code == StatusCode::kCorrupt) code = error.code();
}

Status EvaluationLoop::handle_failure(const Task& task, const std::string& manifest_sha256,
                                      const Status& error) {
  const checkpoint::CheckpointEntry& entry = task.entry;
  if (error.code() != StatusCode::kBusy) busy_.erase(entry.path);
  if (error.ok()) return record_outcome(Outcome::kEvaluated, task, manifest_sha256, {});
  if (error.code() == StatusCode::kCancelled) {  // stop requested; the checkpoint stays pending
    attempt_counts_->undo(entry.step, manifest_sha256);
    return {};
  }
  // Retention deleted the checkpoint during the evaluation. On a network file system, open files
  // can disappear as well, and reading them fails with various errors.
  if (error.code() == StatusCode::kNotFound || is_deleted(entry.path)) {
    log_info("checkpoint superseded", {{"step", entry.step}, {"reason", error.message()}});
    attempt_counts_->remove(entry.step, manifest_sha256);
    // No longer listed, so only a request needs an outcome.
    if (manifest_sha256.empty() && !task.is_requested()) return {};
    return record_outcome(Outcome::kSuperseded, task, manifest_sha256, error);
  }
  // Another program has locked the checkpoint, or no process can be started now. Retention locks a
  // checkpoint only until it has renamed it.
  if (error.code() == StatusCode::kBusy) {
    if (!not_before_.contains(entry.path))
      log_warn("evaluation postponed", {{"step", entry.step}, {"reason", error.message()}});
    attempt_counts_->undo(entry.step, manifest_sha256);
    not_before_[entry.path] = clock_.monotonic() + kBusyDelay;
    busy_.try_emplace(entry.path, Busy{clock_.monotonic(), error.message()});
    return {};
  }
  if (error.code() == StatusCode::kMismatch ||
      (error.code() == StatusCode::kCorrupt && is_corrupt(entry.path))) {
    log_error("checkpoint corrupt", {{"step", entry.step}, {"reason", error.message()}});
    return record_outcome(Outcome::kCorrupt, task, manifest_sha256, error);
  }
  return retry_or_fail(task, manifest_sha256, error);
}

Status EvaluationLoop::retry_or_fail(const Task& task, const std::string& manifest_sha256,
                                     const Status& error) {
  const checkpoint::CheckpointEntry& entry = task.entry;
  const int attempts = attempt_counts_->count(entry.step, manifest_sha256);
  log_warn("evaluation failed", {{"step", entry.step},
                                 {"attempt", attempts},
                                 {"max_attempts", config_.eval.max_attempts},
                                 {"error", error.to_string()}});
  if (attempts >= config_.eval.max_attempts)
    return record_outcome(Outcome::kFailed, task, manifest_sha256, error);
  not_before_[entry.path] = clock_.monotonic() + backoff_time(attempts);
  return {};
}

Status EvaluationLoop::record_outcome(Outcome outcome, const Task& task,
                                      const std::string& manifest_sha256, const Status& error) {
  const checkpoint::CheckpointEntry& entry = task.entry;
  const int attempts = std::max(1, attempt_counts_->count(entry.step, manifest_sha256));
  STOKER_RETURN_IF_ERROR(outcome_log_->append(
      {.step = entry.step,
       .manifest_sha256 = manifest_sha256,
       .outcome = outcome,
       .attempts = attempts,
       .reason = error.message(),
       .exit_code =
           outcome == Outcome::kFailed ? std::optional(exit_code_for(error)) : std::nullopt,
       .request_id = task.request.id},
      to_iso8601(clock_.wall())));
  if (outcome == Outcome::kFailed || outcome == Outcome::kCorrupt)
    failures_.add(entry.step, outcome == Outcome::kCorrupt
                                  ? Status(StatusCode::kCorrupt, error.message())
                                  : error);
  if (task.is_requested()) remove_request(task.request.path);
  attempt_counts_->remove(entry.step, manifest_sha256);
  not_before_.erase(entry.path);
  // A requested one says nothing about those before it.
  if (!entry.path.empty() && !task.is_requested())
    newest_resolved_ = std::max(newest_resolved_, entry.step);
  return {};
}

}  // namespace stoker::evaluator
