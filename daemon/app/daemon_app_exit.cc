// The parts of DaemonApp that end the process: with the outcome of training, or whatever its threads do
// because of a hang or a deadline.
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/app/daemon_app.h"
#include "daemon/app/group_start.h"
#include "daemon/group/failure_record.h"
#include "daemon/group/tcp_store.h"
#include "daemon/service/stack_traces.h"
#include "shared/base/log.h"
#include "shared/base/run_program.h"
#include "shared/base/thread_registry.h"
#include "shared/checkpoint/store.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr auto kHangGrace = 5s;
constexpr auto kExitGrace = 5s;       // for the main thread to exit
constexpr auto kStacksTimeout = 60s;  // with LibTorch's CUDA part there are gigabytes of symbols
constexpr auto kStacksWriteTimeout = 5s;

std::atomic<int> exit_code_at_signal{0};  // for the handler
static_assert(std::atomic<int>::is_always_lock_free);
extern "C" void exit_at_signal(int) { ::_exit(exit_code_at_signal); }

sigset_t signals_of_end() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaddset(&signals, number);
  return signals;
}

// What ended the run at a step that the configuration does not have; empty: nothing.
std::string live_max_steps(const control::TrainerStatus& status, const config::Config& config) {
  for (const auto& [key, value] : status.live_settings)
    if (key == "train.max_steps" || key == "train.max_epochs")
      return ": " + value + (key == "train.max_epochs" ? " epochs" : "") +
             ", set by stokerctl set; the configuration has " +
             *config::value_of(config, "train.max_steps");
  return {};
}

}  // namespace

// ---- After training

// Not counted: before the first step, a configuration error, because systemd does not restart after it
// (RestartPreventExitStatus), and a checkpoint that another process keeps locked.
void DaemonApp::finalize_restart_count(bool ended_well, ExitCode code) {
  if (!directory_ || no_progress_) return;
  const bool is_before_first_step = !training_ || run_->step() == first_step_;
  if (ended_well)
    (void)starts_.reset();
  else if ((run_ && run_->is_blocked_by_lock()) ||
           (code == ExitCode::kConfiguration && is_before_first_step))
    (void)starts_.undo();
}

// A rank that exits because of another one is not the cause.
void DaemonApp::write_error_file(const Status& failure) const {
  const std::string& path = launch_.environment.error_file;
  if (path.empty() || failure.code() == StatusCode::kPeerLost) return;
  const Status written = group::write_error_file(
      default_file_system(), path, failure.to_string(),
      std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()));
  if (!written.ok())
    log_warn("file write failed", {{"path", path}, {"error", written.to_string()}});
}

// torchrun takes the first rank that it sees exit for the cause, and then sends SIGTERM to the others. Of several that exit
// between two of its checks it takes the lowest one.
void DaemonApp::wait_for_exit_of_cause(const Status& failure) const {
  const bool is_under_torchrun = !launch_.environment.error_file.empty();
  if (!is_under_torchrun || failure.code() != StatusCode::kPeerLost || stop_requested_) return;
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const timespec patience{.tv_sec = 1, .tv_nsec = 0};
  (void)::sigtimedwait(&signals, nullptr, &patience);
}

ExitCode DaemonApp::finish(const Status& status, uint64_t step) {
  ExitCode code = no_progress_ ? ExitCode::kNoProgress : exit_code_for(status);
  run::ExitStatus end{run::RunOutcome::kFinished, step, reason_, 0};
  if (!status.ok()) {
    end.outcome = run::RunOutcome::kFailed;
    end.reason = run::reason_of(status);
    // Who reads only the end of the run, such as a supervisor, would otherwise repeat what no restart mends.
    if (is_chief() && status.cause() != StatusCode::kOk) code = exit_code_for({status.cause(), {}});
    log_error("daemon failed", {{"error", end.reason}});
    write_error_file(status);
  } else if (outcome_ && *outcome_ && **outcome_ == run::RunOutcome::kPreempted) {
    end.outcome = run::RunOutcome::kPreempted;
    if (!stop_requested_) end.reason = "stop requested by SIGTERM to another rank";
  } else if (outcome_ && *outcome_ && **outcome_ == run::RunOutcome::kStopped && !ended_early_) {
    end.outcome = run::RunOutcome::kStopped;
    if (!stop_requested_)
      end.reason = launch_.maybe_cluster && !is_chief()
                       ? "the chief has ended the run"
                       : "stop requested through the control socket";
  }
  if (end.outcome == run::RunOutcome::kFinished && !ended_early_ && run_ &&
      run_->finished_because().empty())
    end.reason += live_max_steps(*run_->status(), config_);
  if (end.outcome == run::RunOutcome::kFinished && !ended_early_ && run_ &&
      run_->is_data_exhausted())
    end.reason = "data exhausted";
  if (end.outcome == run::RunOutcome::kPreempted)
    code = static_cast<ExitCode>(is_preempted_ ? preemption_.exit_code
                                               : preemption_.exit_code_of_others);
  end.exit_code = static_cast<int>(code);
  finalize_restart_count(status.ok(), code);
  reserved_descriptors_.clear();
  // Without the lock this process must not write to the directory.
  if (directory_) {
    (void)directory_->publish_pause({});
    if (const Status written = directory_->save_exit_status(end, is_start_accepted());
        !written.ok()) {
      log_error("file write failed",
                {{"path", layout_.exit_status_file()}, {"error", written.to_string()}});
    }
  }
  end_signals(code);
  log_info("daemon exited", {{"state", run::to_string(end.outcome)},
                             {"step", end.step},
                             {"reason", end.reason},
                             {"exit_code", end.exit_code}});
  flush_log();
  const sigset_t signals = signals_of_end();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  stop_event_commands();
  flush_log();
  wait_for_exit_of_cause(status);
  return code;
}

// From now on SIGTERM and SIGINT end the process at once, with its exit code, except the SIGTERM that launchers
// repeat. After the signal set, which restores the default when it is destroyed.
void DaemonApp::end_signals(ExitCode code) {
  boost::system::error_code ignored;
  const sigset_t signals = signals_of_end();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // until the last event is logged
  signals_.clear(ignored);
  exit_code_at_signal = static_cast<int>(code);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGUSR1, SIG_IGN);
  ::signal(SIGINT, exit_at_signal);
  ::signal(SIGTERM, is_preempted_ ? SIG_IGN : exit_at_signal);
}

// At most until the deadline of a preemption.
void DaemonApp::stop_event_commands() {
  if (!event_commands_) return;
  std::chrono::milliseconds grace = service::EventCommands::kTimeout;
  if (is_preempted_) {
    const auto rest = preemption_.deadline - (clock_.monotonic() - stop_requested_at_);
    grace = std::clamp(std::chrono::floor<std::chrono::milliseconds>(rest), 0ms, grace);
  }
  event_commands_->stop(grace);
}

// Before the group is open: tells the other ranks, which wait for this one. An unsupported configuration
// is an error on each of them.
ExitCode DaemonApp::leave_group(const Status& reason) {
  if (is_in_group() && !launch_.maybe_cluster && supported_.ok())
    (void)open_process_group(config_, launch_.environment, layout_, reason, nullptr, {});
  return finish(reason, 0);
}

// A run that was stopped early is not continued by another start, like a finished one.
ExitCode DaemonApp::exit_already_finished(const std::string& reason) {
  reason_ = reason;
  is_already_finished_ = true;
  const bool is_early = reason.starts_with("stopped early: ");
  log_info("run already finished",
           {{"reason", reason_},
            {"hint", is_early ? "change eval.early_stopping, or remove " + layout_.early_stop_file()
                              : "raise train.max_steps to continue it"}});
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  const auto saved = store.list();
  return finish({}, saved.ok() && !saved->empty() ? saved->back().step : 0);
}

// ---- Whatever the threads do

std::atomic<DaemonApp*> DaemonApp::running_{nullptr};

// Without a return: a thread does not end. `grace`: for the programs of events.
void DaemonApp::exit_now(const run::ExitStatus& end, std::chrono::milliseconds grace) {
  set_progress_line("");
  reserved_descriptors_.clear();
  if (directory_) (void)directory_->save_exit_status(end, is_start_accepted());
  flush_log();
  if (event_commands_ && grace > 0ms) {
    event_commands_->stop(grace);
    flush_log();
  }
  ::_exit(end.exit_code);
}

void DaemonApp::reserve_descriptors() {
  constexpr int kReserved = 4;  // a file, and the directories above it
  for (int i = 0; i < kReserved; ++i) reserved_descriptors_.emplace_back(::eventfd(0, EFD_CLOEXEC));
}

// An exception in a thread of a library, such as Gloo's if it gets no descriptor for a connection. Those of
// stoker's threads are caught.
void DaemonApp::on_terminate() {
  static std::atomic<bool> is_ending{false};
  DaemonApp* const app = running_;
  if (app == nullptr) std::abort();
  if (is_ending.exchange(true))
    while (true) ::pause();  // another thread ends the process
  std::string what = "std::terminate()";
  if (std::current_exception()) {
    try {
      throw;
    } catch (const std::exception& error) {
      what = group::short_message(error);
    } catch (...) {
      what = "an exception of unknown type";
    }
  }
  app->end_by_exception(what);
}

void DaemonApp::end_by_exception(const std::string& what) {
  const bool is_of_library = std::ranges::none_of(list_records().threads, [](const auto& thread) {
    return thread.thread == std::this_thread::get_id();
  });
  const ExitCode code =
      is_in_group() && is_of_library ? ExitCode::kCollectiveTimedOut : ExitCode::kInternal;
  // Whatever this thread has locked, or the run directory does.
  (void)catch_exceptions([code]() -> Status {
    std::thread([code] {
      std::this_thread::sleep_for(kExitGrace);
      ::_exit(static_cast<int>(code));
    }).detach();
    return {};
  });
  std::string reason = std::string(is_of_library ? "a thread of a library" : "a thread") +
                       " ended by an exception: " + what;
  if (what.ends_with(std::generic_category().message(EMFILE)))
    reason += "; raise the limit (ulimit -Hn, LimitNOFILE= of a service)";
  log_error("daemon failed", {{"error", reason}});
  write_error_file(Status(StatusCode::kInternal, reason));
  const uint64_t step = run_ ? run_->step() : 0;
  log_info("daemon exited", {{"state", run::to_string(run::RunOutcome::kFailed)},
                             {"step", step},
                             {"reason", reason},
                             {"exit_code", static_cast<int>(code)}});
  exit_now({run::RunOutcome::kFailed, step, reason, static_cast<int>(code)});
}

// On the watchdog's thread: any other one can hang, and so can the run directory.
void DaemonApp::end_hung_run(const service::Watchdog::Expired& expired) {
  const std::string path = own_layout_.stack_traces_file(to_iso8601(clock_.wall()));
  save_stacks(path);
  run::ExitStatus end{
      run::RunOutcome::kFailed, expired.step,
      "watchdog: no progress for " +
          std::to_string(std::chrono::floor<std::chrono::seconds>(expired.idle).count()) +
          " s in phase " + std::string(control::to_string(expired.phase)) + "; stacks in " + path,
      static_cast<int>(ExitCode::kInternal)};
  boost::asio::post(io_, [this, end] { exit_now(end, kHangGrace); });
  std::this_thread::sleep_for(kHangGrace + kExitGrace);  // then the main thread hangs, too
  flush_log();
  ::_exit(end.exit_code);
}

void DaemonApp::save_stacks(const std::string& path) {
  const auto program = find_installed_program("stoker-stacks");
  auto traces = program.ok() ? service::collect_stack_traces(*program, kStacksTimeout)
                             : Result<service::StackTraces>(program.status());
  if (!traces.ok())
    return log_warn("stack traces incomplete", {{"reason", traces.status().to_string()}});
  for (const std::string& missing : traces->missing)
    log_warn("stack traces incomplete", {{"reason", missing}});
  const Status saved = service::save_stack_traces(path, traces->text, kStacksWriteTimeout);
  if (saved.ok()) return log_info("stack traces saved", {{"path", path}});
  log_warn("file write failed", {{"path", path}, {"error", saved.to_string()}});
  std::cerr << traces->text << std::flush;
}

void DaemonApp::check_group_hang(const control::TrainerStatus& status) {
  if (!is_in_group()) return;
  const auto idle = hang_detector_.check(clock_.monotonic(), run_->group_exchanges());
  if (!idle) return;
  std::string activity = "unknown";
  for (const auto& thread : run_->threads().threads)
    if (thread.name == "trainer") activity = thread.operation;
  const int64_t seconds = std::chrono::floor<std::chrono::seconds>(*idle).count();
  log_error("group hang detected",
            {{"step", status.step}, {"seconds", seconds}, {"activity", activity}});
  std::string reason = "rank " + std::to_string(launch_.environment.rank) +
                       " has exchanged nothing with the others for " + std::to_string(seconds) +
                       " s; its trainer is at: " + activity;
  // The trainer may wait for a GPU, which waits for a rank that is lost.
  if (const std::string lost = run_->lost_ranks(); !lost.empty()) reason += "; " + lost;
  exit_now({run::RunOutcome::kFailed, run_->step(), reason + run_->record_flight(reason),
            static_cast<int>(ExitCode::kCollectiveTimedOut)},
           kHangGrace);
}

void DaemonApp::check_stop_deadline(const control::TrainerStatus& status) {
  if (!preemption_.is_possible) return;
  const auto needed =
      group::PreemptionPolicy::needed(status.step_time_ms, status.checkpoint.commit_ms);
  if (status.checkpoint.commit_ms > 0 && needed > preemption_.deadline &&
      !std::exchange(is_short_deadline_logged_, true))
    log_warn("stop deadline too short",
             {{"deadline_seconds", preemption_.deadline.count()},
              {"needed_seconds", std::chrono::duration<double>(needed).count()},
              {"hint",
               "save more often, or let the launcher wait longer and raise "
               "distributed.stop_deadline_seconds"}});
  if (!is_preempted_ ||
      clock_.monotonic() - stop_requested_at_ <=
          std::chrono::duration_cast<std::chrono::nanoseconds>(preemption_.deadline))
    return;
  const uint64_t saved = status.checkpoint.last_saved_step;
  log_error("stop deadline exceeded",
            {{"step", saved}, {"hint", "the run resumes from this checkpoint"}});
  const std::string reason = reason_ + "; the last checkpoint was not complete in time";
  exit_now({run::RunOutcome::kPreempted, saved, reason + run_->record_flight(reason),
            preemption_.exit_code});
}

}  // namespace stoker::app
