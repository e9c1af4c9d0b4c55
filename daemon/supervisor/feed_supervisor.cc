#include "daemon/supervisor/feed_supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "shared/base/log.h"
#include "shared/feed/sample_cache_budget.h"

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kMaxWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr auto kStopGrace = 900ms;
constexpr int kMaxAutoThreads = 64;

std::chrono::nanoseconds worker_timeout(const config::FeedConfig& feed) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(feed.worker_timeout_seconds.value_or(0) * 1e9));
}

// As many as are wanted; with readers: auto one for each core, for more would only take turns, and
// at least one for each process.
int max_threads(const config::FeedConfig& feed) {
  if (feed.num_workers) return std::max(1, *feed.num_workers);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(feed.num_processes, std::clamp(cores, 1, kMaxAutoThreads));
}

// The ring's table has room for the readers first.
size_t max_external_producers(const config::FeedConfig& feed) {
  const bool alone = feed.producers == config::ProducerMode::kExternal;
  const int own =
      alone ? 0 : std::clamp(feed.num_processes, 1, static_cast<int>(ring::kMaxProducers));
  return ring::kMaxProducers - static_cast<size_t>(own);
}

}  // namespace

FeedSupervisor::FeedSupervisor(FeedOptions options, ring::ShmRing& ring,
                               const dataset::Dataset& dataset, const dataset::SamplePlan& plan,
                               Coordinator& coordinator, Clock& clock)
    : options_(std::move(options)),
      ring_(ring),
      dataset_(dataset),
      plan_(plan),
      coordinator_(coordinator),
      clock_(clock),
      sample_error_file_(default_file_system(), options_.sample_error_path,
                         options_.sample_errors.lines),
      sample_errors_(options_.feed, dataset, plan.options().batch, options_.sample_errors,
                     sample_error_file_, clock),
      budget_(static_cast<uint64_t>(options_.feed.max_restarts_per_minute)),
      external_(ring, max_external_producers(options_.feed), worker_timeout(options_.feed)) {
  if (options_.feed.num_workers) return;
  // Each process needs one that works: it is its sign of life.
  const bool processes = options_.feed.num_processes > 0;
  tuner_.emplace(static_cast<uint32_t>(processes ? options_.feed.num_processes : 1),
                 static_cast<uint32_t>(max_threads(options_.feed)));
  ring_.set_active_workers(tuner_->wanted());
}

FeedSupervisor::~FeedSupervisor() { stop(); }

// ---- Starting

Status FeedSupervisor::start() {
  const bool threads = options_.feed.num_processes == 0;
  if (options_.feed.producers != config::ProducerMode::kExternal)
    STOKER_RETURN_IF_ERROR(threads ? start_threads() : start_processes());
  coordinator_.start("feed-supervisor",
                     [this](std::stop_token stop) { return supervise(std::move(stop)); });
  return {};
}

Status FeedSupervisor::start_threads() {
  STOKER_ASSIGN_OR_RETURN(const ring::ProducerId producer, ring_.add_producer("stokerd"));
  ring_.set_producer_pid(producer, ::getpid());
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(make_table(1, 1));
  uint64_t room = feed::sample_cache_budget(options_.feed);
  dataset_.enable_memory_cache(room);
  crash_tracking_.emplace(dataset_, *table_, std::nullopt);
  pool_.emplace(ring_, producer, *crash_tracking_, plan_);
  pool_->start(max_threads(options_.feed), coordinator_, {},
               feed::make_read_ahead_options(options_.feed, 0, 1));
  return {};
}

Status FeedSupervisor::start_processes() {
  if (options_.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(options_.feed_program, find_feed_program());
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
    // The first get one more when the threads do not divide evenly.
    worker.threads = threads / processes + (i < threads % processes ? 1 : 0);
    worker.delay = kFirstDelay;
    STOKER_RETURN_IF_ERROR(spawn(worker));
  }
  return {};
}

Status FeedSupervisor::make_table(uint32_t workers, uint32_t threads) {
  STOKER_ASSIGN_OR_RETURN(table_, feed::QuarantineTable::create(workers, threads));
  quarantine_.emplace(*table_, dataset_);
  return quarantine_->restore(options_.quarantined);
}

Status FeedSupervisor::spawn(Worker& worker) {
  STOKER_ASSIGN_OR_RETURN(worker.producer, ring_.add_producer("stoker-feed"));
  const dataset::PlanOptions& plan = plan_.options();
  std::vector<std::string> arguments{"--config",
                                     options_.config_path,
                                     "--index-dir",
                                     options_.index_dir,
                                     "--dataset-fingerprint",
                                     dataset_.fingerprint(),
                                     "--start-ticket",
                                     std::to_string(plan.first_ticket),
                                     "--start-epoch",
                                     std::to_string(plan.first_epoch),
                                     "--ring-fd",
                                     std::to_string(kRingFd),
                                     "--quarantine-fd",
                                     std::to_string(kQuarantineFd),
                                     "--worker-index",
                                     std::to_string(worker.number),
                                     "--num-workers",
                                     std::to_string(workers_.size()),
                                     "--producer-index",
                                     std::to_string(worker.producer.index),
                                     "--producer-generation",
                                     std::to_string(worker.producer.generation),
                                     "--num-threads",
                                     std::to_string(worker.threads),
                                     "--parent-pid",
                                     std::to_string(::getpid())};
  auto process = WorkerProcess::spawn(options_.feed_program, arguments, ring_.fd(), table_->fd());
  if (!process.ok()) {
    ring_.requeue(worker.producer);
    return process.status();
  }
  ring_.set_producer_pid(worker.producer, process->pid());
  worker.maybe_process.emplace(*std::move(process));
  worker.started = clock_.monotonic();
  worker.monitor = ProgressMonitor(worker_timeout(options_.feed));
  worker.maybe_killed.reset();
  worker.outlives_kill = false;
  log_info("worker process started", {{"pid", worker.maybe_process->pid()},
                                      {"num_threads", worker.threads},
                                      {"generation", worker.producer.generation}});
  return {};
}

// ---- Outside producers

Result<Attachment> FeedSupervisor::attach(ExternalProcess process) {
  if (options_.feed.producers == config::ProducerMode::kInternal)
    return Status(
        StatusCode::kPermission,
        "this run's data come from its own workers; feed.producers: both or external lets "
        "other programs attach");
  const std::lock_guard lock(mutex_);
  if (stopping_ || ring_.closed()) return Status(StatusCode::kClosed, "the feed is ending");
  return external_.attach(std::move(process));
}

// ---- Ending

bool FeedSupervisor::any_process() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.maybe_process.has_value(); });
}

void FeedSupervisor::stop() {
  ring_.close();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kStopGrace;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    {
      const std::lock_guard lock(mutex_);
      for (Worker& worker : workers_)
        if (worker.maybe_process && worker.maybe_process->try_reap()) worker.maybe_process.reset();
      if (left <= 0ms || !any_process()) break;
    }
    wait_for_exits(std::min(left, kMaxWait));
  }
  const std::lock_guard lock(mutex_);
  for (Worker& worker : workers_) {
    if (!worker.maybe_process) continue;
    log_warn("worker process killed", {{"pid", worker.maybe_process->pid()}});
    worker.maybe_process.reset();
  }
  // Noted, not judged: whoever calls stop() has decided how the run ends.
  if (const Status status = count_sample_errors(); !status.ok())
    log_warn("sample error limit reached", {{"error", status.message()}});
  sample_error_file_.write();
}

// ---- Asking

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
  (void)count_sample_errors();  // a verdict is said again, to the supervisor's thread
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

}  // namespace stoker::supervisor
