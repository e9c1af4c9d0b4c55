#include "evaluator/evaluation_loop.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "evaluator/best_command.h"
#include "shared/base/log.h"
#include "shared/base/sha256.h"
#include "shared/run/early_stop.h"
#include "shared/run/stop_request.h"

namespace stoker::evaluator {
namespace {

using std::chrono::nanoseconds;
constexpr uint64_t kMaxManifest = 64ull << 20;

std::string manifest_sha256_of(const std::string& checkpoint_path) {
  const auto text = read_file(join_path(checkpoint_path, "manifest.json"), kMaxManifest);
  return text.ok() ? sha256_hex(*text) : std::string();
}

bool is_gone(const std::string& checkpoint_path) {
  std::error_code error;
  const bool there = std::filesystem::exists(checkpoint_path, error);
  return !there && !error;
}

nanoseconds of_seconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

// 1 s, 4 s, 16 s … up to 256 s.
nanoseconds back_off(int tries) { return std::chrono::seconds(1 << std::min(2 * (tries - 1), 8)); }

}  // namespace

EvaluationLoop::EvaluationLoop(FileSystem& files, Clock& clock, const config::Config& config,
                               const run::RunLayout& layout, Evaluate evaluate)
    : files_(files),
      clock_(clock),
      config_(config),
      layout_(layout),
      rule_(run::backlog_rule(config.eval)),
      evaluate_(std::move(evaluate)),
      began_(clock.monotonic()) {}

Status EvaluationLoop::open() {
  STOKER_RETURN_IF_ERROR(make_directories(files_, layout_.eval()));
  STOKER_RETURN_IF_ERROR(remove_unfinished_writes(files_, layout_.eval()));
  STOKER_ASSIGN_OR_RETURN(ledger_, Ledger::open(files_, layout_.ledger_file()));
  attempts_ = Attempts::open(files_, layout_.attempts_file());
  STOKER_ASSIGN_OR_RETURN(results_, ResultLog::open(files_, layout_, run::goal_of(config_.eval),
                                                    config_.metrics.tensorboard));
  // A crash between the result and the ledger: the checkpoint itself may be gone by now.
  for (const auto& [step, manifest] : results_->found()) {
    if (ledger_->find(step, manifest) != nullptr) continue;
    ask_to_stop(step);
    STOKER_RETURN_IF_ERROR(settle_as(Outcome::kEvaluated, {step, ""}, manifest, ""));
  }
  return {};
}

// ---- What is due

run::Fate EvaluationLoop::fate_of(const checkpoint::CheckpointEntry& entry) const {
  const LedgerEntry* const known = ledger_->find(entry.step, manifest_sha256_of(entry.path));
  if (known == nullptr) return run::Fate::kOpen;
  return known->outcome == Outcome::kEvaluated ? run::Fate::kEvaluated : run::Fate::kGivenUp;
}

std::vector<checkpoint::CheckpointEntry> EvaluationLoop::due_of(
    const std::vector<checkpoint::CheckpointEntry>& entries,
    const Circumstances& circumstances) const {
  std::map<uint64_t, checkpoint::CheckpointEntry> of_step;
  run::Backlog backlog{.evaluated_steps = ledger_->evaluated_steps(),
                       .run_ended = circumstances.run_ended};
  for (const auto& entry : entries) {
    backlog.steps.push_back(entry.step);
    of_step.emplace(entry.step, entry);
  }
  backlog.fate = [&](uint64_t step) { return fate_of(of_step.at(step)); };
  std::vector<checkpoint::CheckpointEntry> due;
  for (const uint64_t step : run::due_steps(backlog, rule_)) due.push_back(of_step.at(step));
  return due;
}

EvaluationLoop::Pass EvaluationLoop::wait_of(const checkpoint::CheckpointEntry& entry,
                                             const Circumstances& circumstances) const {
  Pass wait{.maybe_due_at = nanoseconds{0}, .waiting_for = ""};
  const auto not_before = [&](nanoseconds time, std::string why) {
    if (time <= *wait.maybe_due_at) return;
    wait.maybe_due_at = time;
    wait.waiting_for = std::move(why);
  };
  if (const auto again = not_before_.find(entry.path); again != not_before_.end())
    not_before(again->second, "another try of step " + std::to_string(entry.step));
  if (!circumstances.paced || circumstances.run_ended) return wait;
  if (config_.eval.start_delay_seconds > 0)
    not_before(began_ + of_seconds(config_.eval.start_delay_seconds), "eval.start_delay_seconds");
  if (last_began_ && config_.eval.throttle_seconds > 0)
    not_before(*last_began_ + of_seconds(config_.eval.throttle_seconds), "eval.throttle_seconds");
  return wait;
}

// More may come for as long as training goes on.
bool EvaluationLoop::is_far_enough(const std::vector<checkpoint::CheckpointEntry>& due,
                                   uint64_t until) const {
  return until > 0 && newest_settled_ >= until &&
         std::ranges::none_of(due, [&](const auto& entry) { return entry.step <= until; });
}

Result<EvaluationLoop::Pass> EvaluationLoop::evaluate_due(const Circumstances& circumstances,
                                                          std::stop_token stop) {
  const checkpoint::CheckpointStore store(layout_.checkpoints(), files_);
  int looked_at = 0;
  for (; !stop.stop_requested(); ++looked_at) {
    STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
    std::vector<uint64_t> steps;
    for (const auto& entry : entries) steps.push_back(entry.step);
    attempts_->keep_only(steps);
    if (!entries.empty() && fate_of(entries.back()) != run::Fate::kOpen)
      newest_settled_ = std::max(newest_settled_, entries.back().step);
    const auto due = due_of(entries, circumstances);
    if (is_far_enough(due, circumstances.until)) return Pass{.looked_at = looked_at};
    std::optional<checkpoint::CheckpointEntry> next;
    Pass soonest;
    for (const auto& entry : due) {
      const Pass wait = wait_of(entry, circumstances);
      if (*wait.maybe_due_at <= clock_.monotonic()) {
        next = entry;
        break;
      }
      if (!soonest.maybe_due_at || *wait.maybe_due_at < *soonest.maybe_due_at) soonest = wait;
    }
    soonest.looked_at = looked_at;
    if (!next) return soonest;
    STOKER_RETURN_IF_ERROR(evaluate_one(*next, stop));
  }
  return Pass{.maybe_due_at = {}, .waiting_for = "", .looked_at = looked_at};
}

// ---- One checkpoint

Status EvaluationLoop::evaluate_one(const checkpoint::CheckpointEntry& entry,
                                    std::stop_token stop) {
  last_began_ = clock_.monotonic();
  const auto checkpoint = checkpoint::CheckpointStore::open_verified(entry.path);
  const std::string manifest =
      checkpoint.ok() ? checkpoint->manifest_sha256() : manifest_sha256_of(entry.path);
  if (const int before = attempts_->count(entry.step, manifest);
      before >= config_.eval.max_attempts) {
    return settle_as(Outcome::kFailed, entry, manifest,
                     "the evaluator ended " + std::to_string(before) +
                         " times while it evaluated this checkpoint: killed, or out of memory");
  }
  attempts_->begin(entry.step, manifest);
  if (!checkpoint.ok()) return settle(entry, manifest, checkpoint.status());
  auto judged = judge(entry, *checkpoint, stop);
  if (!judged.ok()) return settle(entry, manifest, judged.status());
  if (const Status recorded = results_->record(judged->result, judged->views); !recorded.ok()) {
    if (recorded.code() == Code::kInvalidArgument) return recorded;
    return settle(entry, manifest, recorded);
  }
  act_on(judged->result, entry.path, stop);
  return settle(entry, manifest, {});
}

Result<Evaluation> EvaluationLoop::judge(const checkpoint::CheckpointEntry& entry,
                                         const checkpoint::VerifiedCheckpoint& checkpoint,
                                         std::stop_token stop) {
  if (auto result = results_->maybe_recorded(entry.step, checkpoint.manifest_sha256())) {
    auto views = std::vector<View>();
    for (const run::SetResult& set : result->sets)
      for (View& view : read_views(layout_, entry.step, set.set)) views.push_back(std::move(view));
    return Evaluation{*std::move(result), std::move(views)};
  }
  log_info("evaluation started", {{"step", entry.step}});
  return evaluate_(checkpoint, stop);
}

void EvaluationLoop::act_on(const run::EvalResult& result, const std::string& checkpoint_path,
                            std::stop_token stop) {
  const bool is_best = results_->best() && results_->best()->step == result.step;
  if (is_best && !config_.eval.on_best_command.empty()) {
    const Status ran = run_best_command(config_.eval.on_best_command, checkpoint_path,
                                        std::chrono::duration_cast<std::chrono::milliseconds>(
                                            of_seconds(config_.eval.timeout_seconds)),
                                        stop);
    if (ran.ok()) {
      log_info("best-checkpoint command finished", {{"step", result.step}});
    } else {
      log_error("best-checkpoint command failed",
                {{"step", result.step}, {"error", ran.message()}});
    }
  }
  ask_to_stop(result.step);
}

void EvaluationLoop::ask_to_stop(uint64_t step) {
  const run::EarlyStopRule rule = run::early_stop_rule(config_.eval);
  if (!rule.is_on()) return;
  const auto reason = rule.maybe_reason(results_->history(step));
  if (!reason) return;
  const Status written = write_file_atomically(
      files_, layout_.stop_file(), to_json(run::StopRequest{step, rule.to_text(), *reason}));
  if (written.ok()) {
    log_info("early stop requested", {{"reason", *reason}});
  } else {
    log_error("early stop request not written", {{"error", written.to_string()}});
  }
}

// ---- Outcomes

Status EvaluationLoop::settle(const checkpoint::CheckpointEntry& entry,
                              const std::string& manifest_sha256, const Status& trouble) {
  if (trouble.ok()) return settle_as(Outcome::kEvaluated, entry, manifest_sha256, "");
  if (trouble.code() == Code::kCancelled) {  // a stop; it stays due
    attempts_->take_back(entry.step, manifest_sha256);
    return {};
  }
  // Retired while we looked at it. On a network file system what was open may be gone as well, and
  // reading it fails in many ways.
  if (trouble.code() == Code::kNotFound || is_gone(entry.path)) {
    log_info("checkpoint superseded", {{"step", entry.step}, {"reason", trouble.message()}});
    attempts_->forget(entry.step, manifest_sha256);
    if (manifest_sha256.empty()) return {};  // it is gone from the list as well
    return settle_as(Outcome::kSuperseded, entry, manifest_sha256, trouble.message());
  }
  if (trouble.code() == Code::kCorrupt || trouble.code() == Code::kMismatch) {
    log_error("checkpoint corrupt", {{"step", entry.step}, {"reason", trouble.message()}});
    return settle_as(Outcome::kCorrupt, entry, manifest_sha256, trouble.message());
  }
  return try_again_or_give_up(entry, manifest_sha256, trouble);
}

Status EvaluationLoop::try_again_or_give_up(const checkpoint::CheckpointEntry& entry,
                                            const std::string& manifest_sha256,
                                            const Status& trouble) {
  const int tries = attempts_->count(entry.step, manifest_sha256);
  log_warn("evaluation failed", {{"step", entry.step},
                                 {"attempt", tries},
                                 {"max_attempts", config_.eval.max_attempts},
                                 {"error", trouble.to_string()}});
  if (tries >= config_.eval.max_attempts)
    return settle_as(Outcome::kFailed, entry, manifest_sha256, trouble.message());
  not_before_[entry.path] = clock_.monotonic() + back_off(tries);
  return {};
}

Status EvaluationLoop::settle_as(Outcome outcome, const checkpoint::CheckpointEntry& entry,
                                 const std::string& manifest_sha256, const std::string& reason) {
  const int tries = std::max(1, attempts_->count(entry.step, manifest_sha256));
  STOKER_RETURN_IF_ERROR(ledger_->append({entry.step, manifest_sha256, outcome, tries, reason},
                                         to_iso8601(clock_.wall())));
  attempts_->forget(entry.step, manifest_sha256);
  not_before_.erase(entry.path);
  if (!entry.path.empty()) newest_settled_ = std::max(newest_settled_, entry.step);
  return {};
}

}  // namespace stoker::evaluator
