#include "daemon/app/daemon_app.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/json.hpp>

#include "daemon/app/group_start.h"
#include "daemon/app/resume_checkpoint.h"
#include "daemon/app/run_files.h"
#include "daemon/app/version.h"
#include "daemon/group/failure_record.h"
#include "daemon/service/stack_traces.h"
#include "shared/base/deadline.h"
#include "shared/base/log.h"
#include "shared/base/run_program.h"
#include "shared/checkpoint/store.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/control/hello_reply.h"
#include "shared/control/socket_path.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 500ms;
constexpr auto kStartingGrace = 3s;  // maximum wait for a scan that does not stop
constexpr auto kJoinGrace = 30s;
constexpr auto kHangGrace = 5s;
constexpr auto kExitGrace = 5s;       // for the main thread to exit
constexpr auto kStacksTimeout = 60s;  // with LibTorch's CUDA part there are gigabytes of symbols
constexpr auto kStacksWriteTimeout = 5s;
// Renewed at each tick, so it only has to outlast a slow tick.
constexpr auto kExtension = 60s;

constexpr ThreadActivity kWatchTraining{.operation = "watch training", .is_waiting = true};

constexpr const char* kSigterm = "SIGTERM";
constexpr const char* kLogLevelKey = "log.level";

std::string signal_name(int number) { return number == SIGINT ? "SIGINT" : kSigterm; }

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// The evaluator's request to stop this run (RUN/eval/early_stop.json), if it follows from the
// current early stopping rule. An invalid file is logged and ignored.
std::optional<run::EarlyStopRequest> find_early_stop_request(const config::EvalConfig& config,
                                                             const run::RunLayout& layout) {
  const run::EarlyStopping rule = run::make_early_stopping(config);
  if (!rule.is_on()) return std::nullopt;
  auto request = run::read_early_stop_request(layout.early_stop_file());
  if (!request.ok()) {
    if (request.status().code() != StatusCode::kNotFound)
      log_warn("early stop request invalid",
               {{"path", layout.early_stop_file()}, {"error", request.status().message()}});
    return std::nullopt;
  }
  if (request->rule != rule.to_text()) return std::nullopt;
  return *std::move(request);
}

// Phases of which systemd would otherwise limit the duration. The watchdog does.
bool is_in_long_phase(control::TrainerState state) {
  return state == control::TrainerState::kStarting || state == control::TrainerState::kStopping ||
         state == control::TrainerState::kSaving;
}

// The changes of a reload as JSON: {"changes":[{"key":"log.level","previous":…,"current":…,
// "effective":"now"}]}
std::string to_json(const std::vector<config::SettingChange>& changes, bool is_level_changed) {
  boost::json::array list;
  for (const config::SettingChange& change : changes)
    list.push_back(boost::json::object{
        {"key", change.key},
        {"previous", boost::json::parse(config::to_json_value(change.previous))},
        {"current", boost::json::parse(config::to_json_value(change.current))},
        {"effective", change.key == kLogLevelKey && is_level_changed ? "now" : "next start"}});
  return boost::json::serialize(boost::json::object{{"changes", std::move(list)}});
}

// Handles SIGHUP and `reload`: reads the configuration again, applies log.level, and logs every other key that
// differs. A level that was set during the run holds until that of the file changes. An invalid
// configuration is logged and rejected as a whole. `now`: the configuration that the daemon was started
// with. In a group the chief changes the settings of the run. In a released pause no trainer could
// change them. Returns what differs, as JSON.
Result<std::string> reload_config(const config::Config& now, const CommandLine& command,
                                  bool is_chief, Run& run, bool is_dry_run = false) {
  const auto fresh = config::load_config(command.config, command.overrides);
  if (!fresh.ok()) {
    if (!is_dry_run)
      log_error("configuration reload rejected", {{"error", fresh.status().message()}});
    return fresh.status();
  }
  std::vector<config::SettingChange> changes = config::diff_configs(now, *fresh);
  std::erase_if(changes, [](const auto& change) { return change.key == "run.dir"; });
  const auto status = run.status();
  const auto live = std::ranges::find(status->live_settings, kLogLevelKey,
                                      &std::pair<std::string, std::string>::first);
  const bool is_live = live != status->live_settings.end();
  const bool is_level_fixed = is_live && run.is_released();
  if (is_dry_run) return to_json(changes, !is_level_fixed);
  const LogLevel level = fresh->log.level;
  if (is_live && (level == now.log.level || is_level_fixed)) {
    log_info("configuration reloaded", {{"log.level", live->second}});
  } else {
    set_log_level(LogLevel::kInfo);  // logs the next line at any configured level
    log_info("configuration reloaded", {{"log.level", config::to_string(level)}});
    set_log_level(level);
    if (is_live && is_chief)
      run.post(control::UnsetSetting{.key = kLogLevelKey},
               [level](const Result<std::string>& unset) {
                 if (unset.ok()) set_log_level(level);
               });
  }
  for (const config::SettingChange& change : changes)
    if (change.key != kLogLevelKey || is_level_fixed)
      log_warn("setting change deferred", {{"key", change.key}, {"effective", "next start"}});
  return to_json(changes, !is_level_fixed);
}

// The configuration of this rank.
config::Config config_of_rank(const config::Config& config,
                              const group::LaunchEnvironment& environment) {
  if (environment.world_size == 1) return config;
  return environment.is_chief() ? config : without_duties_of_chief(config);
}

GroupLaunch make_launch(group::LaunchEnvironment environment,
                        std::optional<ClusterLaunch> maybe_cluster, const config::Config& config) {
  GroupLaunch launch{.environment = std::move(environment),
                     .settings = {},
                     .maybe_cluster = std::move(maybe_cluster)};
  if (launch.environment.world_size > 1) launch.settings = shared_settings(config);
  if (launch.maybe_cluster) add_cluster_settings(*launch.maybe_cluster, launch.settings);
  return launch;
}

Status check_support(const config::Config& config, const GroupLaunch& launch) {
  if (launch.maybe_cluster) return check_cluster_support(config, *launch.maybe_cluster);
  return launch.environment.world_size > 1 ? check_group_support(config, launch.environment)
                                           : Status();
}

}  // namespace

DaemonApp::DaemonApp(config::Config config, CommandLine command, Clock& clock,
                     group::LaunchEnvironment launch, std::optional<ClusterLaunch> maybe_cluster)
    : launch_(make_launch(std::move(launch), std::move(maybe_cluster), config)),
      supported_(check_support(config, launch_)),
      world_size_effects_(is_in_group() && !launch_.maybe_cluster
                              ? world_size_effects(config, launch_.environment)
                              : std::vector<std::string>()),
      config_(config_of_rank(config, launch_.environment)),
      preemption_(group::make_preemption_policy(launch_.environment,
                                                config_.distributed.stop_deadline_seconds,
                                                config_.distributed.preempted_exit_code)),
      command_(std::move(command)),
      layout_(config_.run.dir),
      clock_(clock),
      signals_(io_, SIGINT, SIGTERM),
      timer_(io_),
      notifier_(is_chief() ? service::SystemdNotifier() : service::SystemdNotifier("")),
      hang_detector_(nanoseconds_of(config_.distributed.timeout_seconds),
                     nanoseconds_of(config_.distributed.start_timeout_seconds)) {
  signals_.add(SIGHUP);
  signals_.add(SIGUSR1);
  ::signal(SIGPIPE, SIG_IGN);
  // Exceeding a file size limit is then a write error, like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
}

DaemonApp::~DaemonApp() = default;

ExitCode DaemonApp::run() {
  main_thread_.begin();
  if (const Status opened = open(); !opened.ok()) return leave_group(opened);
  if (is_chief()) {
    const auto request = find_early_stop_request(config_.eval, layout_);
    if (request && !is_in_group()) return exit_already_finished(request->reason);
    // The evaluator can write the request while the ranks start, so the chief tells the others.
    if (request) launch_.finished_because = request->reason;
  }
  run_ =
      std::make_unique<Run>(config_, command_, layout_, clock_, is_in_group() ? &launch_ : nullptr);
  if (const Status served = start_control(); !served.ok()) return leave_group(served);
  if (const Status served = start_http(); !served.ok()) return leave_group(served);
  wait_for_signal();
  start_training();
  start_watchdog();
  tick();
  io_.run();  // until training_ended()

  watchdog_.request_stop();
  (void)watchdog_.join(kJoinGrace);
  const Status joined = trainer_.join(kJoinGrace);
  set_progress_line("");
  if (!trainer_.all_joined()) {
    log_error("threads not joined", {{"reason", joined.message()}});
    flush_log();
    ::_exit(static_cast<int>(ExitCode::kInternal));
  }
  if (!run_->finished_because().empty()) return exit_already_finished(run_->finished_because());
  if (!outcome_)
    return finish(
        joined.ok() ? Status(StatusCode::kInternal, "training ended without an outcome") : joined,
        run_->step());
  return finish(outcome_->status(), run_->step());
}

// ---- Start

Status DaemonApp::open() {
  STOKER_RETURN_IF_ERROR(supported_);
  STOKER_RETURN_IF_ERROR(is_chief() ? open_run_directory() : open_rank_directory());
  if (!is_in_group()) return {};
  const group::LaunchEnvironment& environment = launch_.environment;
  log_info("group starting", {{"launcher", group::to_string(environment.launcher)},
                              {"rank", environment.rank},
                              {"world_size", environment.world_size},
                              {"local_rank", environment.local_rank},
                              {"restart_count", environment.restart_count}});
  for (const std::string& reason : world_size_effects_)
    log_warn("results depend on the number of ranks", {{"reason", reason}});
  return {};
}

// The lock detects another process with the same rank.
Status DaemonApp::open_rank_directory() {
  const run::RunLayout own = layout_of_rank(layout_, launch_.environment.rank);
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), own.logs_dir()));
  auto lock = lock_file(
      own.lock_file(), "pid=" + std::to_string(::getpid()) + " since=" + to_iso8601(clock_.wall()));
  if (lock.status().code() == StatusCode::kBusy)
    return Status(StatusCode::kBusy, lock.status().message() + ": another process is rank " +
                                         std::to_string(launch_.environment.rank) +
                                         " of this run; start each rank once");
  if (!lock.ok()) return lock.status();
  rank_lock_ = *std::move(lock);
  STOKER_RETURN_IF_ERROR(init_log({.level = config_.log.level,
                                   .format = config_.log.format,
                                   .file = own.trainer_log(),
                                   .journal = true}));
  log_info("daemon started", {{"version", stoker_version()},
                              {"torch_version", torch_version()},
                              {"run_dir", own.root()},
                              {"config", command_.config},
                              {"pid", ::getpid()}});
  return {};
}

// Before the group is open: tells the other ranks, which wait for this one. An unsupported configuration
// is an error on each of them.
ExitCode DaemonApp::leave_group(const Status& reason) {
  if (is_in_group() && !launch_.maybe_cluster && supported_.ok())
    (void)open_process_group(config_, launch_.environment, layout_, reason, nullptr, {});
  return finish(reason, 0);
}

Status DaemonApp::open_run_directory() {
  STOKER_ASSIGN_OR_RETURN(directory_, service::RunDirectory::open(layout_, clock_));
  STOKER_RETURN_IF_ERROR(init_log({.level = config_.log.level,
                                   .format = config_.log.format,
                                   .file = layout_.trainer_log(),
                                   .journal = true}));
  event_commands_.emplace(config_.run.on_event_command, layout_.root());
  log_info("daemon started", {{"version", stoker_version()},
                              {"torch_version", torch_version()},
                              {"run_dir", layout_.root()},
                              {"config", command_.config},
                              {"pid", ::getpid()}});
  for (const std::string& warning : directory_->warnings())
    log_warn("run directory not durable", {{"reason", warning}});
  // A restart by the launcher has the same command line.
  if (command_.fresh && launch_.environment.restart_count == 0) {
    STOKER_RETURN_IF_ERROR(archive_run(default_file_system(), layout_.root()));
    STOKER_RETURN_IF_ERROR(directory_->make_folders());
  }
  if (command_.resume.empty()) {
    // Before an early stopping request is considered, which also ends with success.
    const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
    STOKER_RETURN_IF_ERROR(check_checkpoints_exist(store, layout_));
  }
  return count_start();
}

Status DaemonApp::count_start() {
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  STOKER_ASSIGN_OR_RETURN(const auto saved, store.list());
  const uint64_t newest = saved.empty() ? 0 : saved.back().step;
  const auto may_start = starts_.record_start(newest);
  if (!may_start.ok()) {
    log_warn("restart count unavailable", {{"error", may_start.status().to_string()}});
  } else if (!*may_start) {
    no_progress_ = true;
    return Status(StatusCode::kInternal,
                  "the last " + std::to_string(service::RestartCount::kMaxStartsWithoutProgress) +
                      " starts failed without a checkpoint newer than step " +
                      std::to_string(newest) +
                      "; fix the cause, which is in the log, then start again");
  }
  return {};
}

Status DaemonApp::start_control() {
  STOKER_ASSIGN_OR_RETURN(identity_, control::identify_run(layout_.root()));
  if (!config_.control.socket) return {};
  server::ServerOptions options;
  options.socket_path = control::resolve_socket_path(*config_.control.socket, layout_.root(),
                                                     ::getenv("RUNTIME_DIRECTORY"));
  options.link_path = layout_.control_socket();
  STOKER_ASSIGN_OR_RETURN(options.operators, server::resolve_operators(config_.control.operators));
  options.build = stoker_version();
  options.run = identity_;
  options.execute_file_request = [this](const control::FileRequest& request,
                                        const std::stop_token& stop) {
    return execute_file_request(layout_, clock_, request, stop);
  };
  options.reload = [this](bool is_dry_run) {
    return reload_config(config_, command_, is_chief(), *run_, is_dry_run);
  };
  control_ = std::make_unique<server::ControlServer>(io_, clock_, *run_, std::move(options));
  return control_->start();
}

Status DaemonApp::start_http() {
  if (!config_.http.listen) return {};
  STOKER_ASSIGN_OR_RETURN(const auto listen, config::parse_http_listen(*config_.http.listen));
  UniqueFd unix_socket;
  if (!listen.unix_path.empty()) {
    const server::SocketPurpose purpose{.name = "socket of the HTTP server",
                                        .suggestion = "or set http.listen to another path"};
    auto socket = server::ListeningSocket::open(listen.unix_path, server::kProbeTimeout, purpose);
    if (!socket.ok()) return socket.status();
    maybe_http_socket_.emplace(*std::move(socket));
    unix_socket = maybe_http_socket_->take_descriptor();
  }
  http_ = std::make_unique<monitoring::MonitoringServer>(
      io_, clock_,
      monitoring::MonitoringOptions{.listen = listen,
                                    .version = stoker_version(),
                                    .run_dir = layout_.root(),
                                    .status = [this] { return status(); }});
  return http_->start(std::move(unix_socket));
}

control::TrainerStatus DaemonApp::status() const {
  return server::complete_status(
      *run_, identity_, control_ ? control_->counters() : control::TrainerStatus::Control());
}

void DaemonApp::start_training() {
  auto record = std::make_unique<ThreadRecord>("trainer", "train");
  trainer_.start(std::move(record), [this](std::stop_token stop) -> Status {
    auto on_training = [this] {
      first_step_ = run_->step();
      training_ = true;
      notifier_.ready();
    };
    outcome_ = run_->train(stop, on_training);
    boost::asio::post(io_, [this] { training_ended(); });
    return outcome_->status();
  });
}

void DaemonApp::start_watchdog() {
  watchdog_.start("watchdog", [this](const std::stop_token& stop) -> Status {
    const ScopedActivity activity(kWatchTraining);
    service::Watchdog watchdog(config_.watchdog, clock_, [this] { return run_->watched(); });
    do {
      if (const auto expired = watchdog.check()) end_hung_run(*expired);
    } while (sleep_until(stop, std::chrono::steady_clock::now() + kTick));
    return {};
  });
}

// On the watchdog's thread: any other one can hang, and so can the run directory.
void DaemonApp::end_hung_run(const service::Watchdog::Expired& expired) {
  const run::RunLayout own =
      is_chief() ? layout_ : layout_of_rank(layout_, launch_.environment.rank);
  const std::string path = own.stack_traces_file(to_iso8601(clock_.wall()));
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

void DaemonApp::training_ended() {
  notifier_.stopping();
  if (control_) control_->stop();
  maybe_http_socket_.reset();
  if (http_) http_->stop();
  signals_.cancel();
  timer_.cancel();
  io_.stop();
}

// ---- Signals

void DaemonApp::wait_for_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait_for_signal();
  });
}

void DaemonApp::on_signal(int number) {
  // Launchers repeat it, or their agent and Kubernetes both send it; SIGKILL follows in any case.
  if (is_preempted_ && number == SIGTERM) return;
  switch (policy_.on_signal(number)) {
    case service::SignalAction::kReload:
      // Before training, ready() would report that startup is complete.
      if (training_) notifier_.reloading(clock_.monotonic());
      (void)reload_config(config_, command_, is_chief(), *run_);
      if (training_) notifier_.ready();
      return;
    case service::SignalAction::kSave:
      log_info("checkpoint requested", {{"source", "SIGUSR1"}});
      return run_->post(control::SaveCheckpoint{}, {});
    case service::SignalAction::kForceExit:
      return force_exit(number);
    case service::SignalAction::kStopGracefully:
      return stop_gracefully(signal_name(number));
    case service::SignalAction::kIgnore:
      return;
  }
}

void DaemonApp::stop_gracefully(const std::string& why) {
  is_preempted_ = why == kSigterm && preemption_.is_possible;
  stop_requested_ = true;
  stop_requested_at_ = clock_.monotonic();
  reason_ = "stop requested by " + why;
  log_info("shutdown requested",
           {{"signal", why},
            {"hint", std::string("the current step is finished and saved; ") +
                         (is_preempted_ ? "SIGINT" : "a second signal") + " exits immediately"}});
  notifier_.stopping();
  run_->request_stop(is_preempted_);
}

void DaemonApp::force_exit(int number) {
  log_warn("exit forced",
           {{"signal", signal_name(number)}, {"lost", "the steps since the last checkpoint"}});
  set_progress_line("");
  flush_log();
  ::_exit(static_cast<int>(
      ExitCode::kForcedExit));  // the kernel kills the workers and releases the lock
}

// ---- Early stopping

void DaemonApp::handle_early_stop_request() {
  if (stop_requested_ || ended_early_) return;
  const auto request = find_early_stop_request(config_.eval, layout_);
  if (!request) return;
  ended_early_ = true;
  reason_ = "stopped early: " + request->reason;
  log_info("early stopping triggered", {{"reason", request->reason}});
  run_->post(control::Stop{}, {});
}

// A run that was stopped early is not continued by another start, like a finished one.
ExitCode DaemonApp::exit_already_finished(const std::string& reason) {
  reason_ = "stopped early: " + reason;
  log_info("run already finished",
           {{"reason", reason_},
            {"hint", "change eval.early_stopping, or remove " + layout_.early_stop_file()}});
  const checkpoint::CheckpointStore store(layout_.checkpoints_dir(), default_file_system());
  const auto saved = store.list();
  return finish({}, saved.ok() && !saved->empty() ? saved->back().step : 0);
}

// ---- Timer

void DaemonApp::tick() {
  const auto status = run_->status();
  if (training_) {
    if (is_chief()) progress_.report(*status);
    publish_pause_state(*status);
    if (is_chief()) handle_early_stop_request();
  }
  publish_wait(*status);
  notifier_.alive();
  if (is_in_long_phase(status->state)) notifier_.extend_timeout(kExtension);
  check_group_hang(*status);
  check_stop_deadline(*status);
  const bool starting = !training_ && stop_requested_;
  if (starting && clock_.monotonic() - stop_requested_at_ > kStartingGrace &&
      !run_->is_prepared()) {
    log_info("startup cancelled");
    if (directory_) (void)starts_.reset();
    exit_now({is_preempted_ ? run::RunOutcome::kPreempted : run::RunOutcome::kStopped, run_->step(),
              reason_, is_preempted_ ? preemption_.exit_code : 0});
  }
  timer_.expires_after(kTick);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

// Without a return: a thread does not end. `grace`: for the programs of events.
void DaemonApp::exit_now(const run::ExitStatus& end, std::chrono::milliseconds grace) {
  set_progress_line("");
  if (directory_) (void)directory_->save_exit_status(end);
  flush_log();
  if (event_commands_ && grace > 0ms) {
    event_commands_->stop(grace);
    flush_log();
  }
  ::_exit(end.exit_code);
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

void DaemonApp::publish_wait(const control::TrainerStatus& status) {
  const bool is_waiting = !status.waiting_for.empty();
  if (is_waiting)
    notifier_.status("waiting: " + status.waiting_for);
  else if (is_wait_shown_ && !training_)
    notifier_.status(control::to_string(status.state));
  is_wait_shown_ = is_waiting;
}

void DaemonApp::publish_pause_state(const control::TrainerStatus& status) {
  if (!directory_) return;
  std::optional<run::PauseStatus> pause;
  if (status.state == control::TrainerState::kPaused)
    pause = run::PauseStatus{status.step, to_iso8601(clock_.wall())};
  if (const Status shown = directory_->publish_pause(pause); !shown.ok())
    log_warn("file write failed", {{"path", layout_.paused_file()}, {"error", shown.to_string()}});
}

// ---- End

// Not counted: a configuration error before the first step, because systemd does not restart after
// it (RestartPreventExitStatus), and a checkpoint that another process keeps locked, which is no
// fault of the run.
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
    log_error("daemon failed", {{"error", status.to_string()}});
    end.outcome = run::RunOutcome::kFailed;
    end.reason = status.to_string();
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
      run_->is_data_exhausted())
    end.reason = "data exhausted";
  if (end.outcome == run::RunOutcome::kFinished && !ended_early_ && run_ &&
      run_->finished_because().empty() && !command_.replay.empty())
    end.reason = "all logged updates are repeated";
  if (end.outcome == run::RunOutcome::kPreempted)
    code = static_cast<ExitCode>(is_preempted_ ? preemption_.exit_code
                                               : preemption_.exit_code_of_others);
  end.exit_code = static_cast<int>(code);
  finalize_restart_count(status.ok(), code);
  // Without the lock this process must not write to the directory.
  if (directory_) {
    (void)directory_->publish_pause({});
    if (const Status written = directory_->save_exit_status(end); !written.ok()) {
      log_error("file write failed",
                {{"path", layout_.exit_status_file()}, {"error", written.to_string()}});
    }
  }
  restore_default_signals();
  log_info("daemon exited", {{"state", run::to_string(end.outcome)},
                             {"step", end.step},
                             {"reason", end.reason},
                             {"exit_code", end.exit_code}});
  flush_log();
  stop_event_commands();
  flush_log();
  wait_for_exit_of_cause(status);
  return code;
}

// Nothing handles signals any more: the next one ends the process, except the SIGTERM that launchers
// repeat.
void DaemonApp::restore_default_signals() {
  boost::system::error_code ignored;
  signals_.remove(SIGINT, ignored);
  if (!is_preempted_) signals_.remove(SIGTERM, ignored);
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

}  // namespace stoker::app
