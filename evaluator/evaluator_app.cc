#include "evaluator/evaluator_app.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <iostream>
#include <utility>

#include "evaluator/directory_watcher.h"
#include "evaluator/load_run_config.h"
#include "evaluator/priority.h"
#include "shared/base/coordinator.h"
#include "shared/base/deadline.h"
#include "shared/base/file_locks.h"
#include "shared/base/log.h"
#include "shared/base/scratch_directory.h"
#include "shared/config/epochs.h"
#include "shared/config/load_config.h"
#include "shared/run/evaluation_progress.h"
#include "shared/run/run_access.h"
#include "shared/run/run_state.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
constexpr auto kRunPollInterval = 1s;  // until the configuration is loaded
constexpr auto kExitPollInterval = 100ms;
constexpr int kMaxExitPolls = 50;     // a child of the trainer can hold its lock for longer
constexpr auto kStopTimeout = 5s;     // time for the current batch to finish after a stop
constexpr auto kReportedPause = 60s;  // an evaluation that has paused for longer says why

std::string wait_reason(const run::RunState& state) {
  if (!state.no_locks.empty())
    return "the next checkpoint; the state of the trainer is unknown: " + state.no_locks;
  switch (state.phase) {
    case run::RunState::Phase::kRunning:
      if (!state.pause) return "the next checkpoint";
      return "the next checkpoint; training is paused at step " +
             std::to_string(state.pause->step) + " since " + state.pause->since;
    case run::RunState::Phase::kCrashed:
      return "the trainer, which has crashed, to restart";
    case run::RunState::Phase::kPreempted:
      return "the trainer, which was preempted at step " + std::to_string(state.end->step) +
             ", to be started again";
    case run::RunState::Phase::kAbsent:
      return "the trainer to start";
    case run::RunState::Phase::kEnded:
      break;
  }
  return "the remaining checkpoints";
}

// Waits until the next checkpoint is due, at least 1 ms and at most `poll`.
std::chrono::milliseconds poll_timeout(std::chrono::milliseconds poll,
                                       const EvaluationLoop::LoopResult& loop_result,
                                       std::chrono::nanoseconds now) {
  if (!loop_result.maybe_due_at) return poll;
  const auto remaining =
      std::chrono::ceil<std::chrono::milliseconds>(*loop_result.maybe_due_at - now);
  return std::clamp<std::chrono::milliseconds>(remaining, 1ms, poll);
}

// exit_status.json appears before the trainer releases the lock, which is no event.
bool is_exiting(const run::RunState& state, const run::RunLayout& layout) {
  std::error_code ignored;
  return state.phase == run::RunState::Phase::kRunning &&
         std::filesystem::exists(layout.exit_status_file(), ignored);
}

// Limits the memory of this process (RLIMIT_DATA), so that a model or batch that is too large fails
// here instead of triggering the OOM killer for another process. Counts writable private memory
// (heap, tensors, stacks), not program code or libraries. Null: no limit. kInvalidArgument: `mib`
// exceeds the hard limit of this process.
Status limit_memory(std::optional<int64_t> mib) {
  if (!mib) return {};
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  const rlim_t requested = static_cast<rlim_t>(*mib) << 20;
  if (limit.rlim_max != RLIM_INFINITY && requested > limit.rlim_max)
    return Status(StatusCode::kInvalidArgument, "eval.memory_limit_mib is " + std::to_string(*mib) +
                                                    ", but the hard limit of this process is " +
                                                    std::to_string(limit.rlim_max >> 20));
  limit.rlim_cur = requested;
  if (::setrlimit(RLIMIT_DATA, &limit) != 0)
    return Status::from_errno(errno, "eval.memory_limit_mib");
  return {};
}

// ---- Checkpoints of the command line

namespace fs = std::filesystem;

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<std::string> config_path(const CommandLine& command) {
  if (!command.config.empty()) return command.config;
  if (!command.run_dir.empty()) return run::RunLayout(command.run_dir).config_file();
  const std::string& path_argument = command.checkpoints.front();
  if (is_directory(path_argument)) {
    std::error_code error;
    const fs::path run_dir = fs::weakly_canonical(path_argument, error).parent_path().parent_path();
    const std::string path = run::RunLayout(run_dir.string()).config_file();
    if (!error && fs::exists(path, error)) return path;
  }
  return Status(StatusCode::kInvalidArgument,
                path_argument +
                    ": is not in a run directory with a config.yaml; set --config FILE or "
                    "--run-dir DIR");
}

// The indexes that stokerd built in the run of this configuration. A file given by --config belongs
// to no run unless --run-dir is also given.
std::string training_indexes(const CommandLine& command, const std::string& config) {
  if (!command.run_dir.empty()) return run::RunLayout(command.run_dir).index_dir();
  if (!command.config.empty()) return "";
  return run::RunLayout(fs::path(config).parent_path().string()).index_dir();
}

Result<run::EvalResult> evaluate_path(CheckpointEvaluator& evaluator, const std::string& path,
                                      std::stop_token stop) {
  if (is_directory(path)) {
    STOKER_ASSIGN_OR_RETURN(const auto checkpoint,
                            checkpoint::CheckpointStore::open_verified(path));
    return evaluator.measure(checkpoint, std::move(stop));
  }
  std::error_code error;
  if (!fs::exists(path, error)) return Status(StatusCode::kNotFound, path + ": does not exist");
  if (!path.ends_with(".safetensors"))
    return Status(StatusCode::kInvalidArgument,
                  path + ": neither a checkpoint directory nor a .safetensors file");
  return evaluator.measure_file(path, std::move(stop));
}

// Evaluates the checkpoints given on the command line, prints the results to standard output and
// writes nothing else. The configuration is that of --config, else of --run-dir, else of the run
// that contains the first checkpoint. A stop ends it after the current batch.
//
// kNotFound, kCorrupt (exit code 65), kMismatch (another model), configuration errors; the message
// contains the path.
Status evaluate_standalone(const CommandLine& command, Clock& clock, std::stop_token stop) {
  STOKER_ASSIGN_OR_RETURN(const std::string path, config_path(command));
  STOKER_ASSIGN_OR_RETURN(const config::Config config,
                          load_run_config(path, command.overrides, command.trust));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .format = config.log.format}));
  STOKER_RETURN_IF_ERROR(limit_memory(config.eval.memory_limit_mib));
  lower_priority(config.eval.priority);
  const ScratchDirectory scratch("stoker-eval");  // for indexes if there is no run directory
  const std::string run_index_dir = run::RunLayout(command.run_dir).eval_index_dir();
  const bool has_run_index = !command.run_dir.empty() && is_directory(run_index_dir);
  STOKER_ASSIGN_OR_RETURN(
      const auto evaluator,
      CheckpointEvaluator::create(config,
                                  {.own = has_run_index ? run_index_dir : scratch.path(),
                                   .train = training_indexes(command, path)},
                                  clock, {}, stop));
  for (const std::string& path_argument : command.checkpoints) {
    STOKER_ASSIGN_OR_RETURN(const run::EvalResult result,
                            evaluate_path(*evaluator, path_argument, stop));
    std::cout << run::to_json(result) << std::flush;
  }
  return {};
}

}  // namespace

EvaluatorApp::EvaluatorApp(CommandLine command, Clock& clock)
    : command_(std::move(command)),
      layout_(command_.run_dir),
      clock_(clock),
      watchdog_(clock),
      pacer_(clock, std::bind_front(&EvaluatorApp::sleep, this),
             std::bind_front(&EvaluatorApp::read_times, this)),
      wait_logger_(clock) {}

ExitCode EvaluatorApp::run() {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  Coordinator coordinator;
  coordinator.start("evaluate", [this](const std::stop_token& stop) {
    Status ended = run_command(stop);
    return require_stop(std::move(ended), stop.stop_requested());
  });
  while (!coordinator.all_joined() && !coordinator.should_stop()) {
    const timespec poll_interval{0, 100'000'000};
    if (const int signal = ::sigtimedwait(&stop_signals, nullptr, &poll_interval); signal > 0) {
      log_info("shutdown requested", {{"signal", signal == SIGINT ? "SIGINT" : "SIGTERM"}});
      coordinator.request_stop();
    }
    if (watchdog_.is_overdue()) {
      log_error("evaluation hung", {{"action", "exit; the next start counts it as an attempt"}});
      flush_log();
      ::_exit(static_cast<int>(ExitCode::kInternal));
    }
  }
  const Status status = coordinator.join(kStopTimeout);
  record_end(status, coordinator.should_stop());
  if (!status.ok()) log_error("evaluator failed", {{"error", run::reason_of(status)}});
  flush_log();
  if (!coordinator.all_joined()) ::_exit(static_cast<int>(ExitCode::kForcedExit));
  return exit_code_for(status);
}

// For `stokerctl status` and the page. Without a lock, it has recorded nothing in the run.
void EvaluatorApp::record_end(const Status& status, bool was_stopped) {
  if (!lock_) return;
  const run::ExitStatus end{.outcome = !status.ok()  ? run::RunOutcome::kFailed
                                       : was_stopped ? run::RunOutcome::kStopped
                                                     : run::RunOutcome::kFinished,
                            .step = 0,
                            .reason = status.ok() ? "" : run::reason_of(status),
                            .exit_code = static_cast<int>(exit_code_for(status))};
  const std::string path = layout_.eval_exit_status_file();
  const Status written = write_file_atomically(default_file_system(), path, run::to_json(end));
  if (!written.ok())
    log_warn("file write failed", {{"path", path}, {"error", written.to_string()}});
}

Status EvaluatorApp::run_command(std::stop_token stop) {
  if (!command_.checkpoints.empty() && !command_.run_dir.empty())
    STOKER_RETURN_IF_ERROR(open_run_root());
  if (!command_.checkpoints.empty()) return evaluate_standalone(command_, clock_, stop);
  STOKER_RETURN_IF_ERROR(open_run(stop));
  if (stop.stop_requested()) return {};
  if (command_.generate) return print_generated_text();
  STOKER_RETURN_IF_ERROR(open_results());
  return command_.follow ? follow(stop) : evaluate_once(stop);
}

// ---- Open

Status EvaluatorApp::open_run_root() {
  auto opened = DirectoryRoot::open(command_.run_dir);
  if (opened.status().code() == StatusCode::kNotFound) return {};  // reported for its configuration
  if (!opened.ok()) return opened.status();
  run_root_ = *std::move(opened);
  return run::check_writers(layout_, run::RunOwner::kAny);
}

Status EvaluatorApp::open_run(std::stop_token stop) {
  const std::string path = command_.config.empty() ? layout_.config_file() : command_.config;
  DirectoryWatcher watch({command_.run_dir});
  const auto exists = [&path] {
    std::error_code error;  // reported when it is read
    return std::filesystem::exists(path, error) || error;
  };
  while (command_.follow && !exists() && !stop.stop_requested()) {
    wait_logger_.waiting("the start of the run: " + path + " does not exist yet");
    watch.wait(kRunPollInterval, stop);
  }
  if (stop.stop_requested()) return {};
  STOKER_RETURN_IF_ERROR(open_run_root());
  STOKER_RETURN_IF_ERROR(load_config(path));
  if (config_.run.allow_group_access) allow_group_access();
  if (!run_root_) {  // with --config
    STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout_.root()));
    STOKER_RETURN_IF_ERROR(open_run_root());
  }
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout_.eval_dir()));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout_.logs_dir()));
  // With --generate, print only the text and problems.
  const bool is_text = command_.generate.has_value();
  const LogLevel level = is_text ? LogLevel::kWarn : config_.log.level;
  STOKER_RETURN_IF_ERROR(init_log({.level = level,
                                   .format = config_.log.format,
                                   .file = layout_.evaluator_log(),
                                   .journal = true}));
  STOKER_RETURN_IF_ERROR(limit_memory(config_.eval.memory_limit_mib));
  lower_priority(config_.eval.priority);
  auto created = CheckpointEvaluator::create(
      config_, {.own = layout_.eval_index_dir(), .train = layout_.index_dir()}, clock_, {}, stop);
  if (created.status().code() == StatusCode::kOutOfMemory && config_.eval.memory_limit_mib)
    return created.status().with_context(
        "eval.memory_limit_mib: " + std::to_string(*config_.eval.memory_limit_mib) +
        " is too small for the model; increase it");
  if (!created.ok()) return created.status();
  evaluator_ = *std::move(created);
  if (config_.eval.priority != config::EvaluationPriority::kNormal)
    evaluator_->pause_between_batches(std::bind_front(&EvaluatorApp::pause_if_due, this));
  return {};
}

Status EvaluatorApp::load_config(const std::string& path) {
  auto loaded = load_run_config(path, command_.overrides, command_.trust);
  if (loaded.status().code() == StatusCode::kNotFound && command_.config.empty())
    return Status(StatusCode::kNotFound,
                  command_.run_dir +
                      ": not a run directory (no config.yaml); set --run-dir to the "
                      "directory that stokerd trains in");
  if (!loaded.ok()) return loaded.status();
  config_ = *std::move(loaded);
  // With --config; that of the run has them.
  config::keep_stored_steps(config_, layout_.config_file());
  if (config::has_unresolved_epochs(config_))
    return Status(StatusCode::kInvalidArgument,
                  path + ": has settings in epochs, whose steps the run in " + layout_.root() +
                      " does not have; set --run-dir to its directory, or give numbers of steps");
  return {};
}

Status EvaluatorApp::open_results() {
  auto lock = lock_file(layout_.eval_lock_file(), run::lock_text(clock_));
  // The file system has no locks. The lock only guards against a second evaluator, so continue.
  if (lock.status().code() == StatusCode::kIoError) {
    log_warn("evaluation lock unavailable",
             {{"reason", lock.status().message()}, {"hint", "run only one evaluator on this run"}});
  } else if (!lock.ok()) {
    return lock.status();
  } else {
    lock_ = *std::move(lock);
  }
  run::remove_evaluation_progress(default_file_system(), layout_);
  std::error_code ignored;  // record_end() reports it
  std::filesystem::remove(layout_.eval_exit_status_file(), ignored);
  auto table = eval_metrics::read_metric_table(layout_.metric_table_file());
  if (table.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  layout_.metric_table_file() +
                      ": does not exist, so that the direction of a metric is not known; stokerd "
                      "writes it at each start of the run");
  if (!table.ok()) return table.status();
  loop_ = std::make_unique<EvaluationLoop>(
      default_file_system(), clock_, config_, *std::move(table), layout_,
      [this](const checkpoint::VerifiedCheckpoint& checkpoint, std::stop_token stop) {
        return evaluate(checkpoint, std::move(stop));
      });
  STOKER_RETURN_IF_ERROR(loop_->open());
  log_info("evaluator started", {{"run_dir", command_.run_dir},
                                 {"checkpoints", config::to_string(config_.eval.checkpoints)},
                                 {"pid", ::getpid()}});
  return {};
}

Result<Evaluation> EvaluatorApp::evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                                          std::stop_token stop) {
  watchdog_.begin(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(config_.eval.timeout_seconds)));
  const auto trainer = FileLocks::read().find_exclusive_holder(layout_.lock_file());
  has_own_quota_ = !trainer || !shares_cgroup(*trainer);
  pacer_.start_burst();
  paused_ = {};
  run::EvaluationProgressWriter progress(default_file_system(), clock_, layout_);
  evaluator_->report_progress([&](uint64_t done, uint64_t total) {
    progress.write({.step = checkpoint.manifest().step, .done = done, .total = total});
  });
  auto evaluation = evaluator_->evaluate(checkpoint, std::move(stop));
  evaluator_->report_progress({});
  watchdog_.end();
  if (paused_ > 1s)
    log_info("evaluation throttled", {{"step", checkpoint.manifest().step},
                                      {"paused_seconds", seconds_between({}, paused_)},
                                      {"reason", "it competes with training for CPUs"},
                                      {"hint", "eval.priority: normal disables the pauses"}});
  return evaluation;
}

std::chrono::nanoseconds EvaluatorApp::pause_if_due(const std::stop_token& stop) {
  return pacer_.pause_if_due(stop, [this] {
    const auto state = run::read_run_state(layout_);
    return state.phase == run::RunState::Phase::kRunning && !state.pause;
  });
}

// A quota that the trainer shares is competition like that for a CPU.
CpuTimes EvaluatorApp::read_times() const {
  CpuTimes times = read_cpu_times();
  if (has_own_quota_) times.throttled = read_throttled_time("/proc/self/cgroup");
  return times;
}

void EvaluatorApp::sleep(std::chrono::nanoseconds duration, const std::stop_token& stop) {
  // Before the sleep, because a pause can be longer than the watchdog waits.
  watchdog_.extend(duration);
  sleep_until(stop, std::chrono::steady_clock::now() + duration);
  paused_ += duration;
  if (paused_ > kReportedPause)
    wait_logger_.waiting(
        "CPUs for the evaluation; training or other programs use all of them, or the CPU quota is "
        "used up (eval.priority: normal disables the pauses)");
}

Status EvaluatorApp::print_generated_text() {
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  std::optional<checkpoint::VerifiedCheckpoint> checkpoint;
  if (const auto best = run::read_best(layout_); best.ok()) {
    auto opened = checkpoint::CheckpointStore::open_verified(
        join_path(store.directory(), store.checkpoint_name(best->step)));
    if (opened.ok() && opened->manifest_sha256() == best->manifest_sha256) {
      checkpoint = *std::move(opened);
    }
  }
  if (!checkpoint) {
    STOKER_ASSIGN_OR_RETURN(checkpoint, store.open_newest([](const auto& entry, const Status& why) {
      log_warn("checkpoint rejected",
               {{"step", entry.step}, {"path", entry.path}, {"error", why.to_string()}});
    }));
  }
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          evaluator_->generate_text(*checkpoint, *command_.generate));
  std::cout << command_.generate->prompt << text << std::endl;
  return {};
}

// ---- Evaluate

Status EvaluatorApp::evaluate_once(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const bool ended = run::read_run_state(layout_).phase == run::RunState::Phase::kEnded;
    STOKER_ASSIGN_OR_RETURN(const auto loop_result,
                            loop_->evaluate_due({.run_ended = ended}, stop));
    if (!loop_result.maybe_due_at) return loop_->failures();
    wait_logger_.waiting(loop_result.waiting_for);
    DirectoryWatcher({layout_.checkpoints_dir()}).wait(100ms, stop);
  }
  return loop_->failures();
}

Status EvaluatorApp::follow(std::stop_token stop) {
  DirectoryWatcher watch(
      {layout_.root(), layout_.checkpoints_dir(), layout_.evaluation_requests_dir()});
  const auto poll = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(config_.eval.poll_interval_seconds));
  int exit_polls = 0;
  while (!stop.stop_requested()) {
    // Another run was started in its place: the next start of this program evaluates that one.
    if (run_root_ && run_root_->is_replaced())
      return Status(
          StatusCode::kIoError,
          command_.run_dir +
              ": is no longer the directory that this program was started on; start it again");
    // Read the run state before listing the checkpoints: a run that has already ended adds no more.
    const auto state = run::read_run_state(layout_);
    const bool ended = state.phase == run::RunState::Phase::kEnded;
    STOKER_ASSIGN_OR_RETURN(
        const auto loop_result,
        loop_->evaluate_due({.run_ended = ended, .paced = true, .until = command_.until}, stop));
    if (stop.stop_requested()) return {};
    if (command_.until > 0 && loop_->newest_resolved() >= command_.until) {
      log_info("requested step evaluated", {{"until_step", command_.until}});
      return {};
    }
    if (ended && !loop_result.maybe_due_at) {
      log_info("run finished, evaluation complete",
               {{"state", run::to_string(state.end->outcome)}, {"step", state.end->step}});
      return {};
    }
    if (loop_result.num_considered > 0) wait_logger_.over();
    wait_logger_.waiting(loop_result.maybe_due_at ? loop_result.waiting_for : wait_reason(state));
    const auto timeout = poll_timeout(poll, loop_result, clock_.monotonic());
    exit_polls = is_exiting(state, layout_) ? exit_polls + 1 : 0;
    const bool polls_exit = exit_polls > 0 && exit_polls <= kMaxExitPolls;
    watch.wait(polls_exit ? std::min(timeout, kExitPollInterval) : timeout, stop);
  }
  return {};
}

}  // namespace stoker::evaluator
