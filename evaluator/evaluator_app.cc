#include "evaluator/evaluator_app.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <utility>

#include "evaluator/backlog.h"
#include "evaluator/best_command.h"
#include "evaluator/checkpoint_watch.h"
#include "shared/base/coordinator.h"
#include "shared/base/log.h"
#include "shared/base/sha256.h"
#include "shared/config/load_config.h"
#include "shared/run/early_stop.h"
#include "shared/run/run_state.h"
#include "shared/run/stop_request.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
constexpr auto kRescan = 10s;  // inotify is a hint; this is the truth
constexpr auto kGrace = 5s;    // for a batch to end after a stop
constexpr uint64_t kMaxManifest = 64ull << 20;

// The trainer must never feel that somebody evaluates on the same machine.
void take_what_is_left_of_the_processor() {
  ::setpriority(PRIO_PROCESS, 0, 10);
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
}

std::string manifest_sha256_of(const std::string& checkpoint_path) {
  const auto text = read_file(join_path(checkpoint_path, "manifest.json"), kMaxManifest);
  return text.ok() ? sha256_hex(*text) : std::string();
}

}  // namespace

EvaluatorApp::EvaluatorApp(CommandLine command, Clock& clock)
    : command_(std::move(command)), layout_(command_.run_dir), clock_(clock) {}

ExitCode EvaluatorApp::run() {
  take_what_is_left_of_the_processor();
  sigset_t asked_to_stop;
  sigemptyset(&asked_to_stop);
  sigaddset(&asked_to_stop, SIGTERM);
  sigaddset(&asked_to_stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &asked_to_stop, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  Coordinator coordinator;
  coordinator.start("evaluate", [this](std::stop_token stop) { return work(stop); });
  while (!coordinator.all_ended() && !coordinator.should_stop()) {
    const timespec look{0, 100'000'000};
    if (::sigtimedwait(&asked_to_stop, nullptr, &look) > 0) {
      log_info("stopping", {{"reason", "signal"}});
      coordinator.request_stop();
    }
  }
  const Status status = coordinator.join(kGrace);
  if (!status.ok()) log_error("evaluator failed", {{"reason", status.to_string()}});
  flush_log();
  if (!coordinator.all_ended()) ::_exit(static_cast<int>(ExitCode::kAbandoned));
  return exit_code_of(status);
}

Status EvaluatorApp::work(std::stop_token stop) {
  STOKER_RETURN_IF_ERROR(open_run(stop));
  if (stop.stop_requested()) return {};
  if (!command_.checkpoints.empty()) return evaluate_named(stop);
  if (command_.sample_bytes > 0) return print_sample();
  STOKER_RETURN_IF_ERROR(open_results());
  if (command_.follow) return follow(stop);
  while (!stop.stop_requested()) {
    STOKER_ASSIGN_OR_RETURN(const bool again, evaluate_due(stop));
    if (!again) return {};
    CheckpointWatch(layout_.checkpoints()).wait(100ms, stop);
  }
  return {};
}

// ---- Opening

Status EvaluatorApp::open_run(std::stop_token stop) {
  const std::string path = command_.config.empty() ? layout_.config_file() : command_.config;
  CheckpointWatch watch(command_.run_dir);
  bool told = false;
  while (command_.follow && !std::filesystem::exists(path) && !stop.stop_requested()) {
    if (!std::exchange(told, true)) log_info("waiting for the run to begin", {{"for", path}});
    watch.wait(kRescan, stop);
  }
  if (stop.stop_requested()) return {};
  auto loaded = config::load_config(path, command_.overrides);
  if (loaded.status().code() == Code::kNotFound && command_.config.empty())
    return Status(Code::kNotFound, command_.run_dir +
                                       ": not a run directory, it has no config.yaml; give the "
                                       "directory that stokerd trains in");
  if (!loaded.ok()) return loaded.status();
  config_ = *std::move(loaded);
  STOKER_RETURN_IF_ERROR(make_directories(real_files(), layout_.eval()));
  STOKER_RETURN_IF_ERROR(make_directories(real_files(), layout_.logs()));
  // Who asks for text gets the text, and what went wrong.
  const bool is_text = command_.sample_bytes > 0;
  const LogLevel level = is_text ? LogLevel::kWarn : log_level_of(config_.log.level);
  STOKER_RETURN_IF_ERROR(init_log({.level = level, .file = layout_.evaluator_log()}));
  STOKER_ASSIGN_OR_RETURN(
      evaluator_, CheckpointEvaluator::create(config_, join_path(layout_.eval(), "index"), clock_));
  return {};
}

Status EvaluatorApp::open_results() {
  STOKER_ASSIGN_OR_RETURN(
      lock_, lock_file(layout_.eval_lock_file(), "pid=" + std::to_string(::getpid()) +
                                                     " since=" + to_iso8601(clock_.wall())));
  STOKER_RETURN_IF_ERROR(remove_unfinished_writes(real_files(), layout_.eval()));
  STOKER_ASSIGN_OR_RETURN(ledger_, Ledger::open(real_files(), layout_.ledger_file()));
  STOKER_ASSIGN_OR_RETURN(results_,
                          ResultLog::open(real_files(), layout_, run::goal_of(config_.eval),
                                          config_.metrics.tensorboard));
  log_info("evaluator started",
           {{"run", command_.run_dir}, {"policy", config_.eval.policy}, {"pid", ::getpid()}});
  return {};
}

// ---- Named checkpoints and samples: results go to the terminal only

Status EvaluatorApp::evaluate_named(std::stop_token stop) {
  for (const std::string& path : command_.checkpoints) {
    STOKER_ASSIGN_OR_RETURN(const auto checkpoint,
                            checkpoint::CheckpointStore::open_verified(path));
    STOKER_ASSIGN_OR_RETURN(const run::EvalResult result, evaluator_->evaluate(checkpoint, stop));
    std::cout << run::to_json(result) << std::flush;
  }
  return {};
}

Status EvaluatorApp::print_sample() {
  const checkpoint::CheckpointStore store(layout_.checkpoints(), real_files());
  std::optional<checkpoint::VerifiedCheckpoint> chosen;
  if (const auto best = run::read_best(layout_.best_file()); best.ok()) {
    auto opened = checkpoint::CheckpointStore::open_verified(
        join_path(store.directory(), store.name_of(best->step)));
    if (opened.ok() && opened->manifest_sha256() == best->manifest_sha256) {
      chosen = *std::move(opened);
    }
  }
  if (!chosen) {
    STOKER_ASSIGN_OR_RETURN(chosen, store.open_newest([](const auto& entry, const Status& why) {
      log_warn("checkpoint rejected", {{"path", entry.path}, {"reason", why.to_string()}});
    }));
  }
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          evaluator_->sample_text(*chosen, command_.prompt, command_.sample_bytes,
                                                  command_.temperature, config_.run.seed));
  std::cout << command_.prompt << text << std::endl;
  return {};
}

// ---- Evaluating what is due

bool EvaluatorApp::is_settled(const checkpoint::CheckpointEntry& entry) const {
  return ledger_->find(entry.step, manifest_sha256_of(entry.path)) != nullptr;
}

Result<bool> EvaluatorApp::evaluate_due(std::stop_token stop) {
  const checkpoint::CheckpointStore store(layout_.checkpoints(), real_files());
  const Policy policy = config_.eval.policy == "all" ? Policy::kAll : Policy::kLatest;
  while (!stop.stop_requested()) {
    STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
    const auto due =
        due_checkpoints(entries, policy, [this](const auto& entry) { return is_settled(entry); });
    const checkpoint::CheckpointEntry* next = nullptr;
    for (const auto& entry : due) {
      if (clock_.monotonic() >= attempts_[entry.path].not_before) {
        next = &entry;
        break;
      }
    }
    if (next == nullptr) return !due.empty();
    STOKER_RETURN_IF_ERROR(evaluate_one(*next, stop));
  }
  return false;
}

Status EvaluatorApp::evaluate_one(const checkpoint::CheckpointEntry& entry, std::stop_token stop) {
  const auto checkpoint = checkpoint::CheckpointStore::open_verified(entry.path);
  if (!checkpoint.ok()) return settle(entry, manifest_sha256_of(entry.path), checkpoint.status());
  const std::string& manifest = checkpoint->manifest_sha256();
  // A crash after the result was written and before the ledger knew: the work is done, only the
  // record is completed.
  std::optional<run::EvalResult> result = results_->maybe_recorded(entry.step, manifest);
  if (!result) {
    log_info("evaluating", {{"step", entry.step}});
    auto fresh = evaluator_->evaluate(*checkpoint, stop);
    if (!fresh.ok()) return settle(entry, manifest, fresh.status());
    result = *std::move(fresh);
  }
  if (const Status recorded = results_->record(*result); !recorded.ok()) {
    if (recorded.code() == Code::kInvalidArgument) return recorded;
    return settle(entry, manifest, recorded);
  }
  act_on(*result, entry.path, stop);
  return settle(entry, manifest, {});
}

void EvaluatorApp::act_on(const run::EvalResult& result, const std::string& checkpoint_path,
                          std::stop_token stop) {
  const bool is_best = results_->best() && results_->best()->step == result.step;
  if (is_best && !config_.eval.on_best.empty()) {
    const Status ran =
        run_best_command(config_.eval.on_best, checkpoint_path,
                         std::chrono::duration_cast<std::chrono::milliseconds>(
                             std::chrono::duration<double>(config_.eval.timeout_seconds)),
                         stop);
    if (ran.ok()) {
      log_info("on_best run", {{"step", result.step}});
    } else {
      log_error("on_best failed", {{"step", result.step}, {"reason", ran.message()}});
    }
  }
  ask_to_stop(result.step);
}

void EvaluatorApp::ask_to_stop(uint64_t step) {
  const run::EarlyStopRule rule = run::early_stop_rule(config_.eval);
  if (!rule.is_on()) return;
  const auto reason = rule.maybe_reason(results_->history(step));
  if (!reason) return;
  const Status written = write_file_atomically(
      real_files(), layout_.stop_file(), to_json(run::StopRequest{step, rule.to_text(), *reason}));
  if (written.ok()) {
    log_info("the run may end", {{"reason", *reason}});
  } else {
    log_error("stop.json not written", {{"reason", written.to_string()}});
  }
}

Status EvaluatorApp::settle(const checkpoint::CheckpointEntry& entry,
                            const std::string& manifest_sha256, const Status& trouble) {
  if (trouble.code() == Code::kCancelled) return {};  // a stop; it stays due
  Attempt& attempt = attempts_[entry.path];
  LedgerEntry line{entry.step, manifest_sha256, Outcome::kEvaluated, ++attempt.tries,
                   trouble.message()};
  if (trouble.code() == Code::kNotFound) {
    line.outcome = Outcome::kSuperseded;  // retired while we looked at it
    log_info("checkpoint superseded", {{"step", entry.step}});
    if (manifest_sha256.empty()) return {};  // it is gone from the list as well
  } else if (trouble.code() == Code::kCorrupt || trouble.code() == Code::kMismatch) {
    line.outcome = Outcome::kCorrupt;
    log_error("checkpoint corrupt", {{"step", entry.step}, {"reason", trouble.message()}});
  } else if (!trouble.ok()) {
    line.outcome = Outcome::kFailed;
    log_warn("evaluation failed", {{"step", entry.step},
                                   {"try", attempt.tries},
                                   {"of", config_.eval.tries},
                                   {"reason", trouble.to_string()}});
    if (attempt.tries < config_.eval.tries) {
      attempt.not_before =
          clock_.monotonic() + std::chrono::seconds(1 << std::min(2 * (attempt.tries - 1), 8));
      return {};
    }
  }
  return ledger_->append(line, to_iso8601(clock_.wall()));
}

// ---- Following

Status EvaluatorApp::follow(std::stop_token stop) {
  CheckpointWatch watch(layout_.checkpoints());
  while (!stop.stop_requested()) {
    // The state is read before the list: a run that has ended by then adds nothing that this look
    // could miss.
    const auto state = run::look(layout_);
    STOKER_ASSIGN_OR_RETURN(const bool again, evaluate_due(stop));
    if (stop.stop_requested()) return {};
    if (again) {
      watch.wait(1s, stop);
      continue;
    }
    if (state.kind == run::RunState::Kind::kEnded) {
      log_info("run ended, all is evaluated",
               {{"state", state.end->state}, {"step", state.end->step}});
      return {};
    }
    const bool alive = state.kind == run::RunState::Kind::kRunning;
    const std::string waiting =
        alive ? "the next checkpoint" : "the trainer, which is not running, to come back";
    if (waiting != waiting_for_) log_info("waiting", {{"for", waiting}});
    waiting_for_ = waiting;
    watch.wait(kRescan, stop);
  }
  return {};
}

}  // namespace stoker::evaluator
