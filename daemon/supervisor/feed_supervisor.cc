#include "daemon/supervisor/feed_supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <memory>
#include <utility>

#include "shared/base/cgroup.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/feed/worker_pool.h"

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr std::chrono::nanoseconds kMaxDelay = 5s;
constexpr std::chrono::nanoseconds kHealthyRunTime =
    60s;  // the restart delay is reset after this run time
constexpr std::chrono::nanoseconds kKillWarningDelay = 5s;
constexpr auto kStopGrace = 900ms;
constexpr auto kProducerStopGrace = 5s;  // to save what they cannot send again
constexpr int kMaxAutoThreads = 64;
constexpr ThreadActivity kSupervise{.operation = "supervise workers", .is_waiting = true};

std::chrono::nanoseconds worker_timeout(const config::FeedConfig& feed) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(feed.worker_timeout_seconds.value_or(0) * 1e9));
}

// Number of worker threads. For auto: one per core, because more would only compete, and at least
// one per process.
int max_threads(const config::FeedConfig& feed) {
  if (feed.num_workers) return std::max(1, *feed.num_workers);
  return std::max(feed.num_processes, std::min(num_usable_cores(), kMaxAutoThreads));
}

// The workers take entries of the ring's producer table first.
size_t max_external_producers(const config::FeedConfig& feed) {
  const bool alone = feed.producers == config::ProducerMode::kExternal;
  const int own =
      alone ? 0 : std::clamp(feed.num_processes, 1, static_cast<int>(ring::kMaxProducers));
  return ring::kMaxProducers - static_cast<size_t>(own);
}

}  // namespace

FeedSupervisor::FeedSupervisor(FeedOptions options, ring::ShmRing& ring,
                               const data::Dataset* maybe_dataset,
                               const data::order::SamplePlan& plan, Coordinator& coordinator,
                               Clock& clock)
    : options_(std::move(options)),
      ring_(ring),
      maybe_dataset_(maybe_dataset),
      plan_(plan),
      coordinator_(coordinator),
      clock_(clock),
      sample_error_file_(default_file_system(), options_.sample_error_path,
                         options_.sample_errors.lines),
      sample_errors_(options_.feed, maybe_dataset, plan.options().batch, options_.sample_errors,
                     sample_error_file_, clock),
      budget_(static_cast<uint64_t>(options_.feed.max_restarts_per_minute)),
      external_(ring, max_external_producers(options_.feed), worker_timeout(options_.feed)) {
  if (options_.stream) stream_.emplace(*std::exchange(options_.stream, std::nullopt), ring);
  if (options_.feed.num_workers || stream_) return;
  // Each process needs one active thread because its progress is the process's heartbeat.
  const bool processes = options_.feed.num_processes > 0;
  tuner_.emplace(static_cast<uint32_t>(processes ? options_.feed.num_processes : 1),
                 static_cast<uint32_t>(max_threads(options_.feed)));
  ring_.set_active_workers(tuner_->wanted());
}

FeedSupervisor::~FeedSupervisor() { stop(); }

// ---- Starting

Status FeedSupervisor::start() {
  const bool threads = options_.feed.num_processes == 0;
  if (stream_)
    STOKER_RETURN_IF_ERROR(start_stream());
  else if (options_.feed.producers != config::ProducerMode::kExternal)
    STOKER_RETURN_IF_ERROR(threads ? start_threads() : start_processes());
  coordinator_.start(std::make_unique<ThreadRecord>("feed-supervisor", "supervise workers"),
                     [this](std::stop_token stop) { return supervise(std::move(stop)); });
  return {};
}

Status FeedSupervisor::start_threads() {
  STOKER_ASSIGN_OR_RETURN(const ring::ProducerId producer, ring_.add_producer("stokerd"));
  ring_.set_producer_pid(producer, ::getpid());
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(make_table(1, 1));
  crash_tracking_.emplace(*maybe_dataset_, *table_, std::nullopt);
  pool_.emplace(ring_, producer, *crash_tracking_, plan_);
  pool_->start(max_threads(options_.feed), coordinator_, {},
               feed::make_read_ahead_options(options_.feed, 0, 1));
  return {};
}

Status FeedSupervisor::start_processes() {
  if (options_.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(options_.feed_program, feed::find_feed_program());
  }
  const int threads = max_threads(options_.feed);
  const int processes = std::clamp(options_.feed.num_processes, 1, threads);
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(make_table(static_cast<uint32_t>(processes),
                                    static_cast<uint32_t>((threads + processes - 1) / processes)));
  workers_.resize(static_cast<size_t>(processes));
  for (int i = 0; i < processes; ++i) {
    Worker& worker = workers_[static_cast<size_t>(i)];
    worker.number = static_cast<uint32_t>(i);
    // If the threads do not divide evenly, the first processes get one more.
    worker.threads = threads / processes + (i < threads % processes ? 1 : 0);
    worker.delay = kFirstDelay;
    STOKER_RETURN_IF_ERROR(spawn(worker));
  }
  return {};
}

Status FeedSupervisor::start_stream() {
  if (options_.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(options_.feed_program, feed::find_feed_program());
  }
  const std::lock_guard lock(mutex_);
  const int num_workers = stream_->supply().has_indexed ? max_threads(options_.feed) : 0;
  STOKER_RETURN_IF_ERROR(make_table(1, static_cast<uint32_t>(std::max(num_workers, 1))));
  STOKER_RETURN_IF_ERROR(stream_->open());
  workers_.resize(1);
  workers_[0].threads = stream_->supply().num_threads + num_workers;
  workers_[0].delay = kFirstDelay;
  return spawn(workers_[0]);
}

std::string FeedSupervisor::waits_for() const {
  const std::lock_guard lock(mutex_);
  const bool is_running = !workers_.empty() && workers_.front().maybe_process;
  return stream_ && is_running ? stream_->states().waits_for() : "";
}

ThreadList FeedSupervisor::stream_threads() const {
  const std::lock_guard lock(mutex_);
  if (!stream_ || workers_.empty() || !workers_.front().maybe_process) return {};
  ThreadList list = stream_->states().threads();
  set_kernel_states(workers_.front().maybe_process->pid(), list);
  return list;
}

Result<feed::StreamState> FeedSupervisor::stream_state(uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  assert(stream_ && "the data is no stream");
  return stream_->states().read(ticket);
}

std::optional<feed::StreamHistory> FeedSupervisor::history_of(
    const feed::StreamState& state) const {
  const std::lock_guard lock(mutex_);
  return stream_ ? stream_->history_of(state, any_process()) : std::nullopt;
}

Result<feed::StreamState> FeedSupervisor::end_state() const {
  const std::lock_guard lock(mutex_);
  assert(stream_ && "the data is no stream");
  return stream_->end_state();
}

Status FeedSupervisor::make_table(uint32_t workers, uint32_t threads) {
  STOKER_ASSIGN_OR_RETURN(table_, feed::QuarantineTable::create(workers, threads));
  quarantine_.emplace(*table_, maybe_dataset_);
  return quarantine_->restore(options_.quarantined);
}

feed::WorkerArguments FeedSupervisor::arguments_of(const Worker& worker) const {
  constexpr int kFirstFd = feed::WorkerProcess::kFirstFd;
  feed::WorkerArguments arguments{.config_path = options_.config_path,
                                  .index_dir = options_.index_dir,
                                  .ring_fd = kFirstFd,
                                  .quarantine_fd = kFirstFd + 1,
                                  .worker = worker.number,
                                  .workers = static_cast<uint32_t>(workers_.size()),
                                  .producer = worker.producer.index,
                                  .generation = worker.producer.generation,
                                  .parent = ::getpid()};
  if (stream_) {
    arguments.threads = max_threads(options_.feed);
    return arguments;
  }
  arguments.fingerprint = maybe_dataset_->fingerprint();
  arguments.plan_ticket = plan_.options().first_ticket;
  arguments.plan_epoch = plan_.options().first_epoch;
  arguments.rank = options_.share.rank;
  arguments.world_size = options_.share.world_size;
  arguments.threads = worker.threads;
  return arguments;
}

Status FeedSupervisor::spawn(Worker& worker) {
  std::vector<int> fds{ring_.fd(), table_->fd()};
  if (stream_) STOKER_RETURN_IF_ERROR(stream_->prepare());
  STOKER_ASSIGN_OR_RETURN(worker.producer, ring_.add_producer("stoker-feed"));
  feed::WorkerArguments arguments = arguments_of(worker);
  if (stream_) std::ranges::copy(stream_->pass_to(arguments), std::back_inserter(fds));
  auto process = feed::WorkerProcess::spawn(options_.feed_program, to_command_line(arguments), fds);
  if (!process.ok()) {
    ring_.requeue(worker.producer);
    return process.status();
  }
  ring_.set_producer_pid(worker.producer, process->pid());
  worker.maybe_process.emplace(*std::move(process));
  worker.started = clock_.monotonic();
  worker.monitor = ProgressMonitor(worker_timeout(options_.feed));
  worker.maybe_killed.reset();
  worker.is_unkillable_logged = false;
  log_info("worker process started", {{"pid", worker.maybe_process->pid()},
                                      {"num_threads", worker.threads},
                                      {"generation", worker.producer.generation}});
  return {};
}

// ---- External producers

Result<Attachment> FeedSupervisor::attach(ExternalProcess process) {
  if (options_.feed.producers == config::ProducerMode::kInternal)
    return Status(StatusCode::kPermission,
                  "this run is fed by its own workers; feed.producers: both or external permits "
                  "other programs to attach");
  const std::lock_guard lock(mutex_);
  if (stopping_ || ring_.closed()) return Status(StatusCode::kClosed, "the feed is shutting down");
  return external_.attach(std::move(process));
}

// ---- Shutdown

bool FeedSupervisor::any_process() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.maybe_process.has_value(); });
}

void FeedSupervisor::end_process(Worker& worker) {
  ProcessUse last = table_->use(worker.number).load();
  last.rss_bytes = kNotMeasured;
  ended_use_ = ended_use_ + last;
  table_->use(worker.number) = {};
  worker.maybe_process.reset();
}

void FeedSupervisor::stop() {
  ring_.close();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  const bool has_producers = stream_ && stream_->supply().has_producers;
  const auto deadline =
      std::chrono::steady_clock::now() + (has_producers ? kProducerStopGrace : kStopGrace);
  while (true) {
    const auto remaining = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    {
      const std::lock_guard lock(mutex_);
      for (Worker& worker : workers_)
        if (worker.maybe_process && worker.maybe_process->try_reap()) end_process(worker);
      if (remaining <= 0ms || !any_process()) break;
    }
    wait_for_exits(std::min(remaining, options_.max_wait));
  }
  const std::lock_guard lock(mutex_);
  for (Worker& worker : workers_) {
    if (!worker.maybe_process) continue;
    log_warn("worker process killed", {{"pid", worker.maybe_process->pid()}});
    end_process(worker);
  }
  if (stream_) stream_->forget_unsaved_ends();
  // Logged only: the caller of stop() has already decided how the run ends.
  if (const Status status = count_sample_errors();
      !status.ok() && status.message() != coordinator_.reason().message())
    log_warn("sample error limit reached", {{"error", status.message()}});
  sample_error_file_.write();
}

// ---- Queries

int FeedSupervisor::live_workers() const {
  const std::lock_guard lock(mutex_);
  int threads = 0;
  if (pool_ && !stopping_) threads = max_threads(options_.feed);
  for (const Worker& worker : workers_) threads += worker.maybe_process ? worker.threads : 0;
  return tuner_ ? std::min(threads, static_cast<int>(tuner_->wanted())) : threads;
}

WorkerActivity::Busy FeedSupervisor::busy() const {
  const std::lock_guard lock(mutex_);
  return activity_.busy();
}

uint64_t FeedSupervisor::sample_errors() const {
  const std::lock_guard lock(mutex_);
  return sample_errors_.count();
}

uint64_t FeedSupervisor::sample_errors_before(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  (void)count_sample_errors();  // the status is returned again to the supervisor thread
  return sample_errors_.count_before(ticket);
}

uint64_t FeedSupervisor::crashes() const {
  const std::lock_guard lock(mutex_);
  return budget_.crashes();
}

uint64_t FeedSupervisor::timeouts() const {
  const std::lock_guard lock(mutex_);
  return timeouts_;
}

std::vector<uint64_t> FeedSupervisor::quarantined() const {
  const std::lock_guard lock(mutex_);
  return quarantine_ ? quarantine_->samples() : options_.quarantined;
}

size_t FeedSupervisor::external_producers() const {
  const std::lock_guard lock(mutex_);
  return external_.size();
}

std::vector<int> FeedSupervisor::process_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ids;
  for (const Worker& worker : workers_)
    if (worker.maybe_process) ids.push_back(worker.maybe_process->pid());
  return ids;
}

ProcessUse FeedSupervisor::worker_use() const {
  const std::lock_guard lock(mutex_);
  ProcessUse use = ended_use_;
  for (const Worker& worker : workers_)
    if (worker.maybe_process) use = use + table_->use(worker.number).load();
  return use;
}

// The supervisor thread.
Status FeedSupervisor::supervise(std::stop_token stop) {
  const ScopedActivity supervising(kSupervise);
  while (!stop.stop_requested() && !ring_.closed()) {
    wait_for_exits(options_.max_wait);
    STOKER_RETURN_IF_ERROR(check_workers());  // an error stops all threads
    sample_error_file_.write();               // without mutex_, so that other threads do not wait
  }
  return {};
}

Status FeedSupervisor::check_workers() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return {};
  for (Worker& worker : workers_) check_worker(worker);
  external_.check_producers(clock_.monotonic());
  ring_.set_active_workers(tuner_ ? tuner_->wanted() : 0);  // a producer can overwrite it
  const ring::RingCounters counters = ring_.counters();
  activity_.update(clock_.monotonic(), counters);
  tune_worker_count(counters);
  return count_sample_errors();
}

void FeedSupervisor::tune_worker_count(const ring::RingCounters& counters) {
  if (!tuner_) return;
  const uint32_t before = tuner_->wanted();
  const uint32_t wanted = tuner_->update({.now = clock_.monotonic(),
                                          .ready = counters.ready,
                                          .slots = ring_.slots(),
                                          .consumed = counters.consumed});
  if (wanted == before) return;
  ring_.set_active_workers(wanted);
  log_info("worker count adjusted", {{"num_workers", wanted}, {"previous", before}});
}

// Returns early when a process exits or is due for a restart.
void FeedSupervisor::wait_for_exits(std::chrono::milliseconds timeout) const {
  std::vector<pollfd> entries;
  {
    const std::lock_guard lock(mutex_);
    const auto now = clock_.monotonic();
    for (const int pidfd : external_.pidfds())
      entries.push_back({.fd = pidfd, .events = POLLIN, .revents = 0});
    for (const Worker& worker : workers_) {
      if (worker.maybe_process)
        entries.push_back({.fd = worker.maybe_process->pidfd(), .events = POLLIN, .revents = 0});
      else if (!worker.done && !stopping_)
        timeout =
            std::clamp(std::chrono::ceil<std::chrono::milliseconds>(worker.next_start_time - now),
                       0ms, timeout);
    }
  }
  ::poll(entries.data(), entries.size(), static_cast<int>(timeout.count()));
}

void FeedSupervisor::check_worker(Worker& worker) {
  if (worker.maybe_process) {
    const auto end = worker.maybe_process->try_reap();
    return end ? handle_crash(worker, *end) : watch_progress(worker);
  }
  // A faulty producer can make all tickets look filled and revert it.
  if (worker.done && !coordinator_.should_stop()) worker.done = ring_.has_ended();
  if (worker.done || clock_.monotonic() < worker.next_start_time) return;
  const Status spawned = spawn(worker);
  if (spawned.ok()) return;
  log_error("worker process spawn failed", {{"error", spawned.to_string()}});
  schedule_restart(worker);
  const Status limit_status = budget_.record_crash({.now = clock_.monotonic(),
                                                    .published = ring_.counters().published,
                                                    .code = spawned.code(),
                                                    .cause = spawned.to_string(),
                                                    .hint = feed::WorkerProcess::End().hint()});
  if (!limit_status.ok()) coordinator_.request_stop(limit_status);
}

void FeedSupervisor::watch_progress(Worker& worker) {
  const int pid = worker.maybe_process->pid();
  const auto now = clock_.monotonic();
  if (!worker.maybe_killed) {
    if (worker.monitor.has_timed_out({.now = now,
                                      .cpu_time = feed::cpu_time(pid),
                                      .progress = ring_.progress(worker.producer)}))
      kill_timed_out(worker);
    return;
  }
  // Its tickets are not requeued: until the kernel has ended the process, it can still write.
  if (worker.is_unkillable_logged || now - *worker.maybe_killed < kKillWarningDelay) return;
  worker.is_unkillable_logged = true;
  log_error("worker process unkillable", {{"pid", pid},
                                          {"state", feed::process_state(pid)},
                                          {"tickets", ring_.progress(worker.producer).claims}});
}

void FeedSupervisor::kill_timed_out(Worker& worker) {
  const int pid = worker.maybe_process->pid();
  log_warn("worker process timed out",
           {{"pid", pid},
            {"duration_seconds", seconds_between({}, worker.monitor.idle_time())},
            {"state", worker.monitor.is_cpu_bound() ? "computing" : feed::process_state(pid)},
            {"tickets", ring_.progress(worker.producer).claims}});
  worker.maybe_killed = clock_.monotonic();
  ++timeouts_;
  worker.maybe_process->kill();
}

// An error that the process reports itself is one of the data or the system, and not a crash; ok: it
// reports none.
Status FeedSupervisor::take_failure(const Worker& worker,
                                    const feed::WorkerProcess::End& end) const {
  const Status failure = table_->take_failure(worker.number);
  if (end.by_signal || end.clean()) return {};
  // stokerd itself has opened an indexed dataset.
  return stream_ ? failure : feed::as_lost_access(failure);
}

std::string FeedSupervisor::crash_cause(const Worker& worker, const feed::WorkerProcess::End& end,
                                        const Status& failure) const {
  std::string cause = end.to_string();
  if (!failure.ok()) cause += ": " + failure.to_string();
  if (end.clean()) cause += " before the end of the data";
  if (worker.maybe_killed) cause += " after a timeout";
  if (const auto call = table_->take_denied_syscall(worker.number))
    cause +=
        " for system call " + std::to_string(*call) + ", which is denied to workers (feed.sandbox)";
  return cause;
}

// The process has been reaped. Its tickets can be requeued only now, after the suspects are
// recorded.
void FeedSupervisor::handle_crash(Worker& worker, const feed::WorkerProcess::End& end) {
  const Status failure = take_failure(worker, end);
  const std::string cause = crash_cause(worker, end, failure);
  const bool waited = worker.maybe_killed && !worker.monitor.is_cpu_bound();
  end_process(worker);
  if (end.is_sandbox_refused()) return end_without_sandbox(worker);
  const auto quarantined =
      quarantine_->assess_crash(worker.number, cause,
                                waited || !failure.ok() ? Quarantine::CrashAttribution::kNone
                                                        : Quarantine::CrashAttribution::kPossible);
  const uint64_t num_requeued = ring_.requeue(worker.producer);
  if (stream_) stream_->forget_unsaved_ends();
  if (stream_ && !failure.ok()) {
    worker.done = true;
    return coordinator_.request_stop(failure);
  }
  const bool has_ended = ring_.has_ended() || (end.clean() && stream_ && stream_->end());
  if (end.clean() && has_ended && (num_requeued == 0 || stream_)) {
    worker.done = true;
    return;
  }
  if (const Status header = end.clean() ? ring_.check_header() : Status(); !header.ok()) {
    worker.done = true;
    return coordinator_.request_stop(header);
  }
  log_warn(
      "worker process crashed",
      {{"cause", cause}, {"requeued_tickets", num_requeued}, {"crashes", budget_.crashes() + 1}});
  if (!quarantined.ok()) coordinator_.request_stop(quarantined.status());
  if (const Status input = stream_ ? stream_->check_input() : Status(); !input.ok()) {
    worker.done = true;
    return coordinator_.request_stop(input);
  }
  const bool made_progress = quarantined.ok() && *quarantined;
  const auto now = clock_.monotonic();
  if (made_progress || now - worker.started >= kHealthyRunTime) worker.delay = kFirstDelay;
  schedule_restart(worker);
  RestartLimiter::Crash crash{.now = now,
                              .published = ring_.counters().published,
                              .is_unprovoked = !end.by_signal,
                              .made_progress = made_progress,
                              .code = end.status_code(),
                              .cause = cause,
                              .hint = end.hint(),
                              .failure = failure};
  if (worker.maybe_killed) {  // by this process
    crash.code = StatusCode::kTimedOut;
    crash.hint = "check the storage of the data and feed.worker_timeout_seconds";
  }
  const Status limit_status = budget_.record_crash(crash);
  if (!limit_status.ok()) coordinator_.request_stop(limit_status);
}

// The process has read nothing, and its successor would fail in the same way.
void FeedSupervisor::end_without_sandbox(Worker& worker) {
  ring_.requeue(worker.producer);
  worker.done = true;
  coordinator_.request_stop(feed::sandbox_refused());
}

void FeedSupervisor::schedule_restart(Worker& worker) {
  worker.next_start_time = clock_.monotonic() + worker.delay;
  worker.delay = std::min(worker.delay * 2, kMaxDelay);
}

// Read the counters first: all reports of the tickets that they count as consumed are then
// available.
Status FeedSupervisor::count_sample_errors() {
  const ring::RingCounters counters = ring_.counters();
  if (counters.lost_reports > counters.sample_errors ||
      counters.lost_reports < std::exchange(lost_reports_, counters.lost_reports))
    return Status(StatusCode::kCorrupt,
                  "the ring counts " + std::to_string(counters.lost_reports) + " lost reports of " +
                      std::to_string(counters.sample_errors) + ": a producer overwrote the ring");
  return sample_errors_.add_reports(ring_.drain_sample_errors(), counters);
}

}  // namespace stoker::supervisor
