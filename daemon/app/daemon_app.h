// DaemonApp: the stokerd process. Owns the run directory, the log and the trainer thread, and runs
// the main event loop (signals, control socket, progress line, watchdog).
//
// Threads: run() on the main thread, which only runs the event loop; training runs on the trainer
//          thread.
// Group:   every rank is a stokerd. The chief alone has the run directory and what is above; the
//          others have a rank directory, with their lock and log.
// Errors:  run() logs the error, writes exit_status.json and returns the exit code.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/app/command_line.h"
#include "daemon/app/evaluated_reductions.h"
#include "daemon/app/group_launch.h"
#include "daemon/app/progress_reporter.h"
#include "daemon/app/run.h"
#include "daemon/group/hang_detector.h"
#include "daemon/group/preemption.h"
#include "daemon/monitoring/monitoring_server.h"
#include "daemon/server/control_server.h"
#include "daemon/server/listening_socket.h"
#include "daemon/service/event_commands.h"
#include "daemon/service/restart_count.h"
#include "daemon/service/run_directory.h"
#include "daemon/service/signal_policy.h"
#include "daemon/service/systemd_notifier.h"
#include "daemon/service/watchdog.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/thread_registry.h"
#include "shared/config/config.h"
#include "shared/run/early_stopping.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::app {

class DaemonApp {
 public:
  // `launch`: of this process; a world of one rank trains alone. `maybe_cluster`: the task of this
  // process, of which `launch` is rank_of().
  DaemonApp(config::Config config, CommandLine command, Clock& clock,
            group::LaunchEnvironment launch = {},
            std::optional<ClusterLaunch> maybe_cluster = std::nullopt);
  ~DaemonApp();

  ExitCode run();

 private:
  ExitCode run_to_end();
  [[noreturn]] static void on_terminate();
  void reserve_descriptors();
  Status open();
  Status open_run_directory();
  Status open_rank_directory();
  Status start_log();  // of this rank
  ExitCode leave_group(const Status& reason);
  bool is_chief() const { return launch_.environment.is_chief(); }
  bool is_in_group() const { return launch_.environment.world_size > 1; }
  Status start_control();
  Status start_http();
  control::TrainerStatus status() const;
  Status count_start();
  void start_training();
  void start_watchdog();
  void end_hung_run(const service::Watchdog::Expired& expired);
  [[noreturn]] void end_by_exception(const std::string& what);
  void save_stacks(const std::string& path);
  void training_ended();

  void wait_for_signal();
  void on_signal(int number);
  void stop_gracefully(const std::string& why);
  void stop_preparation();
  void force_exit(int number);
  void handle_early_stop_request();
  void reduce_learning_rate(const control::TrainerStatus& status);
  // Why the run has ended before; empty: it has not. find_end(): also without an early stop.
  std::string find_early_stop() const;
  std::string find_end() const;
  ExitCode exit_already_finished(const std::string& reason);
  // Whether this process may end the run, not only its own start.
  bool is_start_accepted() const { return is_already_finished_ || (run_ && run_->is_accepted()); }
  void tick();
  // Ends the process, whatever its threads do.
  [[noreturn]] void exit_now(const run::ExitStatus& end, std::chrono::milliseconds grace = {});
  void check_group_hang(const control::TrainerStatus& status);
  void check_stop_deadline(const control::TrainerStatus& status);
  void publish_wait(const control::TrainerStatus& status);
  void publish_pause_state(const control::TrainerStatus& status);
  ExitCode finish(const Status& status, uint64_t step);
  void end_signals(ExitCode code);
  void stop_event_commands();
  // Resets the restart count after success; does not count a configuration error or a checkpoint
  // that stays locked.
  void finalize_restart_count(bool ended_well, ExitCode code);
  void write_error_file(const Status& failure) const;
  void wait_for_exit_of_cause(const Status& failure) const;

  static std::atomic<DaemonApp*> running_;  // for on_terminate()

  // Constant after construction, except for finished_because, which is set before run_.
  GroupLaunch launch_;
  // Constant after construction.
  const Status supported_;  // whether the configuration works in the group
  const std::vector<std::string> world_size_effects_;
  const config::Config config_;
  const group::PreemptionPolicy preemption_;
  const CommandLine command_;
  const run::RunOwner owner_;  // who may own the run directory
  const run::RunLayout layout_;
  const run::RunLayout own_layout_;  // of this rank; layout_ without a group or on the chief
  Clock& clock_;

  // For the exit status of a process that has used up all others. Released by the thread that ends it.
  std::vector<UniqueFd> reserved_descriptors_;

  // Only for the main thread.
  ThreadRecord main_thread_{"main", "serve events"};
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer timer_;
  service::SystemdNotifier notifier_;  // disabled on ranks other than the chief
  ProgressReporter progress_{notifier_, clock_};
  std::optional<service::RunDirectory> directory_;        // of the chief
  std::optional<DirectoryRoot> run_root_;                 // of the other ranks
  std::optional<FileLock> rank_lock_;                     // of the other ranks
  std::optional<service::EventCommands> event_commands_;  // of the chief
  service::SignalPolicy policy_;
  service::RestartCount starts_{default_file_system(), layout_.restart_count_file()};
  control::RunIdentity identity_;  // set by start_control()
  bool no_progress_ = false;
  bool is_wait_shown_ = false;  // as the status of the service
  bool stop_requested_ = false;
  bool is_preempted_ = false;  // the stop was requested by the launcher
  bool is_short_deadline_logged_ = false;
  group::HangDetector hang_detector_;
  EvaluatedReductions reductions_{config_, layout_};
  bool is_reducing_ = false;          // the trainer has not answered yet
  bool ended_early_ = false;          // early stopping, requested by the evaluator
  bool is_already_finished_ = false;  // before this start
  std::chrono::nanoseconds stop_requested_at_{0};
  std::string reason_ = "max_steps reached";

  // Own synchronization.
  std::unique_ptr<Run> run_;
  std::atomic<bool> training_{false};  // preparation is done; written by the trainer thread
  uint64_t first_step_ = 0;            // step that training starts from; written before training_
  // Set by the trainer thread before it posts training_ended().
  std::optional<Result<run::RunOutcome>> outcome_;
  Coordinator trainer_;  // its thread uses the members above

  // Only for the main thread; they use run_.
  std::unique_ptr<server::ControlServer> control_;
  std::unique_ptr<monitoring::MonitoringServer> http_;
  std::optional<server::ListeningSocket> maybe_http_socket_;  // removed before http_ closes it

  Coordinator watchdog_;  // its thread uses run_
};

}  // namespace stoker::app
