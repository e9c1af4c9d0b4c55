#include "daemon/app/daemon_app.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "daemon/app/group_start.h"
#include "daemon/app/reload_config.h"
#include "daemon/app/resume_checkpoint.h"
#include "daemon/app/run_files.h"
#include "daemon/app/version.h"
#include "daemon/train/live_state.h"
#include "shared/base/cgroup.h"
#include "shared/base/deadline.h"
#include "shared/base/exception_status.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"
#include "shared/config/live_settings.h"
#include "shared/config/run_metrics.h"
#include "shared/control/hello_reply.h"
#include "shared/control/socket_path.h"
#include "shared/run/last_checkpoint.h"
#include "shared/run/lineage.h"
#include "shared/run/run_access.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 500ms;
constexpr auto kStartingGrace = 3s;  // maximum wait for a scan that does not stop
constexpr auto kJoinGrace = 30s;
// Renewed at each tick, so it only has to outlast a slow tick.
constexpr auto kExtension = 60s;

constexpr ThreadActivity kWatchTraining{.operation = "watch training", .is_waiting = true};

constexpr const char* kSigterm = "SIGTERM";
constexpr const char* kMaxStepsReached = "max_steps reached";

std::string signal_name(int number) { return number == SIGINT ? "SIGINT" : kSigterm; }

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// The evaluator's request to stop this run (RUN/eval/early_stop.json), if it follows from the
// current early stopping rule and from checkpoints that the run descends from. An invalid file is logged
// and ignored.
std::optional<run::EarlyStopRequest> find_early_stop_request(const config::Config& config,
                                                             const run::RunLayout& layout) {
  const config::EarlyStoppingConfig& conditions = config.eval.early_stopping;
  if (!conditions.patience && !conditions.patience_steps && !conditions.stopping_threshold)
    return std::nullopt;
  auto request = run::read_early_stop_request(layout.early_stop_file());
  if (!request.ok()) {
    if (request.status().code() != StatusCode::kNotFound)
      log_warn("early stop request invalid",
               {{"path", layout.early_stop_file()}, {"error", request.status().message()}});
    return std::nullopt;
  }
  // A run that starts from nothing has no results yet.
  const auto saved =
      checkpoint::CheckpointStore(layout.checkpoints_dir(), default_file_system()).list();
  const auto last = run::read_last_checkpoint(layout.last_checkpoint_file());
  if (saved.ok() && saved->empty() && last.ok() && !*last) return std::nullopt;
  const auto table = eval_metrics::read_metric_table(layout.metric_table_file());
  if (!table.ok()) return std::nullopt;
  const auto rule = run::make_early_stopping(config.eval, *table);
  if (!rule.ok() || !rule->is_on() || request->rule != rule->to_text()) return std::nullopt;
  const auto lineage = run::read_lineage(layout.lineage_file());
  if (!lineage.ok() || !run::applies(*request, *lineage)) return std::nullopt;
  return *std::move(request);
}

// train.max_steps of a run that continues from this checkpoint, with the settings that were changed while it trained.
Result<uint64_t> max_steps_after(const config::Config& config, const std::string& checkpoint) {
  constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
  const std::string path = join_path(checkpoint, "manifest.json");
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxManifestBytes));
  STOKER_ASSIGN_OR_RETURN(const auto manifest, checkpoint::parse_manifest(text, path));
  STOKER_ASSIGN_OR_RETURN(const auto live, train::parse_live_state(manifest.live_settings));
  STOKER_ASSIGN_OR_RETURN(
      const config::Config changed,
      config::with_live_settings(config, config::resume_live(config, live.settings).kept));
  return changed.train.max_steps;
}

// Phases of which systemd would otherwise limit the duration. The watchdog does.
bool is_in_long_phase(control::TrainerState state) {
  return state == control::TrainerState::kStarting || state == control::TrainerState::kStopping ||
         state == control::TrainerState::kSaving;
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

// What a run starts at least: threads of its own, and worker processes with theirs. Those of LibTorch are checked where their
// number is set.
size_t min_threads(const config::Config& config) {
  constexpr int kOwn =
      6;  // trainer, watchdog, feed-supervisor, metrics, checkpoints, control files
  constexpr int kOfProcess = 3;  // its main thread, log, read-ahead
  const config::FeedConfig& feed = config.feed;
  const int workers =
      feed.producers == config::ProducerMode::kExternal ? 0 : feed.num_workers.value_or(1);
  return static_cast<size_t>(kOwn + kOfProcess * std::max(0, feed.num_processes) +
                             std::max(0, workers));
}

Status check_support(const config::Config& config, const GroupLaunch& launch) {
  if (launch.maybe_cluster) return check_cluster_support(config, *launch.maybe_cluster);
  return launch.environment.world_size > 1 ? check_group_support(config, launch.environment)
                                           : Status();
}

// A file that others can write is no decision of this user, who may have the run directory of others for
// its configuration.
bool is_group_accepted(const config::Config& config, const CommandLine& command) {
  if (!config.run.allow_group_access) return false;
  const auto origin = command.origins.find("run.allow_group_access");
  if (origin == command.origins.end() || origin->second == config::SettingOrigin::kOverride)
    return true;
  return command.is_config_trusted;
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
      owner_(is_group_accepted(config_, command_) ? run::RunOwner::kAny : run::RunOwner::kTrusted),
      layout_(config_.run.dir),
      own_layout_(layout_of_rank(layout_, launch_.environment.rank)),
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

DaemonApp::~DaemonApp() { running_ = nullptr; }

ExitCode DaemonApp::run() {
  ExitCode code = ExitCode::kInternal;
  running_ = this;
  std::set_terminate(&DaemonApp::on_terminate);
  reserve_descriptors();
  // The system can refuse a thread.
  const Status thrown = catch_exceptions([&]() -> Status {
    code = run_to_end();
    return {};
  });
  if (thrown.ok()) return code;
  if (run_) run_->request_stop();
  trainer_.request_stop(thrown);
  (void)trainer_.join(kJoinGrace);
  const ExitCode ended = finish(thrown, run_ ? run_->step() : 0);
  if (!trainer_.all_joined()) ::_exit(static_cast<int>(ended));  // as in run_to_end()
  return ended;
}

ExitCode DaemonApp::run_to_end() {
  main_thread_.begin();
  if (const Status opened = open(); !opened.ok()) return leave_group(opened);
  if (const Status permitted = check_thread_limit(min_threads(config_)); !permitted.ok())
    return leave_group(permitted);
  if (is_chief() || launch_.maybe_cluster) {
    const std::string stopped = find_early_stop();
    if (!stopped.empty() && (!is_in_group() || launch_.maybe_cluster))
      return exit_already_finished(stopped);
    // The evaluator can write the request while the ranks start, so the chief tells the others.
    launch_.finished_because = stopped;
    launch_.find_end = [this] { return find_end(); };
  }
  run_ =
      std::make_unique<Run>(config_, command_, layout_, clock_, is_in_group() ? &launch_ : nullptr);
  run_->set_stop_listener([this] { stop_preparation(); });  // called by the server, in this thread
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

// With --resume, whether the run is still on its branch is known later; with --fresh, what is there is of another run
// until the chief has archived it.
std::string DaemonApp::find_early_stop() const {
  const bool is_continued = command_.resume.empty() && (is_chief() || !command_.fresh);
  const auto request = is_continued ? find_early_stop_request(config_, layout_) : std::nullopt;
  return request ? "stopped early: " + request->reason : std::string();
}

// For a task of a cluster that waits for another one in vain. The chief knows what it starts.
std::string DaemonApp::find_end() const {
  if (const std::string stopped = find_early_stop(); !stopped.empty()) return stopped;
  const auto locked = is_locked(layout_.lock_file());
  const bool is_starting = !is_chief() && locked.ok() && *locked;
  if (is_starting || !command_.resume.empty() || command_.fresh) return {};
  const auto saved =
      checkpoint::CheckpointStore(layout_.checkpoints_dir(), default_file_system()).list();
  if (!saved.ok() || saved->empty()) return {};
  // 0: in epochs that no start has resolved.
  const auto max_steps = max_steps_after(config_, saved->back().path);
  const bool has_all_steps = max_steps.ok() && *max_steps > 0 && saved->back().step >= *max_steps;
  return has_all_steps ? std::string(kMaxStepsReached) : std::string();
}

// ---- Start

Status DaemonApp::open() {
  STOKER_RETURN_IF_ERROR(supported_);
  if (owner_ == run::RunOwner::kAny) allow_group_access();
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
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), layout_.root()));
  STOKER_ASSIGN_OR_RETURN(run_root_, DirectoryRoot::open(layout_.root()));
  STOKER_RETURN_IF_ERROR(run::check_writers(layout_, owner_));
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), own_layout_.logs_dir()));
  auto lock = lock_file(
      own_layout_.lock_file(),
      run::lock_text(clock_, launch_.maybe_cluster ? launch_.maybe_cluster->task.name() : ""));
  if (lock.status().code() == StatusCode::kBusy)
    return Status(StatusCode::kBusy, lock.status().message() + ": another process is rank " +
                                         std::to_string(launch_.environment.rank) +
                                         " of this run; start each rank once");
  if (!lock.ok()) return lock.status();
  rank_lock_ = *std::move(lock);
  return start_log();
}

Status DaemonApp::start_log() {
  STOKER_RETURN_IF_ERROR(init_log({.level = config_.log.level,
                                   .format = config_.log.format,
                                   .file = own_layout_.trainer_log(),
                                   .journal = true}));
  if (is_chief()) event_commands_.emplace(config_.run.on_event_command, own_layout_.root());
  log_info("daemon started", {{"version", stoker_version()},
                              {"torch_version", torch_version()},
                              {"run_dir", own_layout_.root()},
                              {"config", command_.config},
                              {"pid", ::getpid()}});
  return {};
}

Status DaemonApp::open_run_directory() {
  STOKER_ASSIGN_OR_RETURN(
      directory_, service::RunDirectory::open(layout_, clock_, default_file_system(), owner_));
  STOKER_RETURN_IF_ERROR(start_log());
  for (const std::string& warning : directory_->warnings())
    log_warn("run directory not durable", {{"reason", warning}});
  // A restart by the launcher has the same command line.
  if (command_.fresh && launch_.environment.restart_count == 0) {
    STOKER_RETURN_IF_ERROR(run::put_back_exit_status(default_file_system(), layout_));
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
  watchdog_.start(std::make_unique<ThreadRecord>("watchdog", "watch training"),
                  [this](const std::stop_token& stop) -> Status {
                    const ScopedActivity activity(kWatchTraining);
                    service::Watchdog watchdog(config_.watchdog, clock_,
                                               [this] { return run_->watched(); });
                    do {
                      if (const auto expired = watchdog.check()) end_hung_run(*expired);
                    } while (sleep_until(stop, std::chrono::steady_clock::now() + kTick));
                    return {};
                  });
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

// By `stokerctl stop`, before training.
void DaemonApp::stop_preparation() {
  if (stop_requested_) return;
  stop_requested_ = true;
  stop_requested_at_ = clock_.monotonic();
  if (!ended_early_) reason_ = "stop requested through the control socket";
  notifier_.stopping();
  run_->request_stop();
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
  const auto request = find_early_stop_request(config_, layout_);
  if (!request) return;
  ended_early_ = true;
  reason_ = "stopped early: " + request->reason;
  log_info("early stopping triggered", {{"reason", request->reason}});
  run_->post(control::Stop{}, {});
}

// ---- Reduce on plateau

namespace {

// In effect: as in `config` without a live setting.
template <typename Number>
Number live_number(const control::TrainerStatus& status, std::string_view key, Number configured) {
  for (const auto& [live_key, value] : status.live_settings)
    if (live_key == key) return static_cast<Number>(std::strtod(value.c_str(), nullptr));
  return configured;
}

}  // namespace

// The ranks of a group agree on the step after which it takes effect. A larger number that was set remains.
void DaemonApp::reduce_learning_rate(const control::TrainerStatus& status) {
  const auto* const plateau =
      std::get_if<config::ReduceOnPlateauScheduler>(&config_.scheduler.schedule);
  // Before and after training, the status does not have the live settings.
  const bool is_training = status.state != control::TrainerState::kStarting &&
                           status.state != control::TrainerState::kStopping;
  if (plateau == nullptr || is_reducing_ || !is_training) return;
  const uint64_t count =
      reductions_.count(live_number(status, "optimizer.lr", config_.optimizer.lr()));
  if (count <= live_number(status, config::kNumReductionsKey, plateau->num_reductions)) return;
  is_reducing_ = true;
  run_->post(control::SetSetting{.key = config::kNumReductionsKey, .value = std::to_string(count)},
             [this](const Result<std::string>&) {
               boost::asio::post(io_, [this] { is_reducing_ = false; });
             });
}

// ---- Timer

void DaemonApp::tick() {
  const auto status = run_->status();
  if (training_) {
    if (is_chief()) progress_.report(*status);
    publish_pause_state(*status);
    if (is_chief()) handle_early_stop_request();
    if (is_chief()) reduce_learning_rate(*status);
  }
  publish_wait(*status);
  // It extends the timeout of systemd's watchdog as well, until the next sign of life.
  if (is_in_long_phase(status->state)) notifier_.extend_timeout(kExtension);
  notifier_.alive();
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

}  // namespace stoker::app
