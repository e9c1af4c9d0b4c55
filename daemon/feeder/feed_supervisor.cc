#include "daemon/feeder/feed_supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "shared/base/log.h"
#include "shared/feed/sample_room.h"

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kLongestWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr auto kStopGrace = 900ms;
constexpr int kMostAutoThreads = 64;

std::chrono::nanoseconds hang_limit(const config::FeedConfig& feed) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(feed.worker_timeout_seconds.value_or(0) * 1e9));
}

// As many as are wanted; with readers: auto one for each core, for more would only take turns, and
// at least one for each process.
int most_threads(const config::FeedConfig& feed) {
  if (feed.num_workers) return std::max(1, *feed.num_workers);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(feed.num_processes, std::clamp(cores, 1, kMostAutoThreads));
}

// The ring's table has room for the readers first.
size_t most_outside(const config::FeedConfig& feed) {
  const bool alone = feed.producers == config::ProducerMode::kExternal;
  const int own =
      alone ? 0 : std::clamp(feed.num_processes, 1, static_cast<int>(ring::kMaxProducers));
  return ring::kMaxProducers - static_cast<size_t>(own);
}

}  // namespace

FeedSupervisor::FeedSupervisor(FeedSettings settings, ring::ShmRing& ring,
                               const dataset::Dataset& dataset, const dataset::SamplePlan& plan,
                               Coordinator& coordinator, Clock& clock)
    : settings_(std::move(settings)),
      ring_(ring),
      dataset_(dataset),
      plan_(plan),
      coordinator_(coordinator),
      clock_(clock),
      bad_sample_file_(real_files(), settings_.bad_sample_path, settings_.bad_samples.lines),
      bad_samples_(settings_.feed, dataset, plan.settings().batch, settings_.bad_samples,
                   bad_sample_file_, clock),
      budget_(static_cast<uint64_t>(settings_.feed.max_restarts_per_minute)),
      outside_(ring, most_outside(settings_.feed), hang_limit(settings_.feed)) {
  if (settings_.feed.num_workers) return;
  // Each process needs one that works: it is its sign of life.
  const bool processes = settings_.feed.num_processes > 0;
  tuner_.emplace(static_cast<uint32_t>(processes ? settings_.feed.num_processes : 1),
                 static_cast<uint32_t>(most_threads(settings_.feed)));
  ring_.set_wanted_readers(tuner_->wanted());
}

FeedSupervisor::~FeedSupervisor() { stop(); }

// ---- Starting

Status FeedSupervisor::start() {
  const bool threads = settings_.feed.num_processes == 0;
  if (settings_.feed.producers != config::ProducerMode::kExternal)
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
  uint64_t room = feed::room_for_samples(settings_.feed);
  dataset_.keep_samples(room);
  guarded_.emplace(dataset_, *table_, std::nullopt);
  pool_.emplace(ring_, producer, *guarded_, plan_);
  pool_->start(most_threads(settings_.feed), coordinator_, {},
               feed::read_ahead_of(settings_.feed, 0, 1));
  return {};
}

Status FeedSupervisor::start_processes() {
  if (settings_.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(settings_.feed_program, find_feed_program());
  }
  const int threads = most_threads(settings_.feed);
  const int processes = std::clamp(settings_.feed.num_processes, 1, threads);
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(make_table(static_cast<uint32_t>(processes),
                                    static_cast<uint32_t>((threads + processes - 1) / processes)));
  readers_.resize(static_cast<size_t>(processes));
  for (int i = 0; i < processes; ++i) {
    Reader& reader = readers_[static_cast<size_t>(i)];
    reader.number = static_cast<uint32_t>(i);
    // The first get one more when the threads do not divide evenly.
    reader.threads = threads / processes + (i < threads % processes ? 1 : 0);
    reader.delay = kFirstDelay;
    STOKER_RETURN_IF_ERROR(spawn(reader));
  }
  return {};
}

Status FeedSupervisor::make_table(uint32_t readers, uint32_t threads) {
  STOKER_ASSIGN_OR_RETURN(table_, QuarantineTable::create(readers, threads));
  quarantine_.emplace(*table_, dataset_);
  return quarantine_->restore(settings_.quarantined);
}

Status FeedSupervisor::spawn(Reader& reader) {
  STOKER_ASSIGN_OR_RETURN(reader.producer, ring_.add_producer("stoker-feed"));
  const dataset::PlanSettings& plan = plan_.settings();
  std::vector<std::string> arguments{"--config",
                                     settings_.config_path,
                                     "--index-dir",
                                     settings_.index_dir,
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
                                     std::to_string(reader.number),
                                     "--num-workers",
                                     std::to_string(readers_.size()),
                                     "--producer-index",
                                     std::to_string(reader.producer.index),
                                     "--producer-generation",
                                     std::to_string(reader.producer.generation),
                                     "--num-threads",
                                     std::to_string(reader.threads),
                                     "--parent-pid",
                                     std::to_string(::getpid())};
  auto process = ReaderProcess::spawn(settings_.feed_program, arguments, ring_.fd(), table_->fd());
  if (!process.ok()) {
    ring_.reissue(reader.producer);
    return process.status();
  }
  ring_.set_producer_pid(reader.producer, process->pid());
  reader.maybe_process.emplace(*std::move(process));
  reader.started = clock_.monotonic();
  reader.watch = HangWatch(hang_limit(settings_.feed));
  reader.maybe_killed.reset();
  reader.outlives_kill = false;
  log_info("worker process started", {{"pid", reader.maybe_process->pid()},
                                      {"num_threads", reader.threads},
                                      {"generation", reader.producer.generation}});
  return {};
}

// ---- Outside producers

Result<Attachment> FeedSupervisor::attach(OutsideProcess process) {
  if (settings_.feed.producers == config::ProducerMode::kInternal)
    return Status(
        Code::kPermission,
        "this run's data come from its own readers; feed.producers: both or external lets "
        "other programs attach");
  const std::lock_guard lock(mutex_);
  if (stopping_ || ring_.closed()) return Status(Code::kClosed, "the feed is ending");
  return outside_.attach(std::move(process));
}

// ---- Ending

bool FeedSupervisor::any_process() const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [](const Reader& reader) { return reader.maybe_process.has_value(); });
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
      for (Reader& reader : readers_)
        if (reader.maybe_process && reader.maybe_process->maybe_reap())
          reader.maybe_process.reset();
      if (left <= 0ms || !any_process()) break;
    }
    wait_for_deaths(std::min(left, kLongestWait));
  }
  const std::lock_guard lock(mutex_);
  for (Reader& reader : readers_) {
    if (!reader.maybe_process) continue;
    log_warn("worker process killed", {{"pid", reader.maybe_process->pid()}});
    reader.maybe_process.reset();
  }
  // Noted, not judged: whoever calls stop() has decided how the run ends.
  if (const Status status = count_bad_samples(); !status.ok())
    log_warn("sample error limit reached", {{"error", status.message()}});
  bad_sample_file_.write();
}

// ---- Asking

int FeedSupervisor::live_readers() const {
  const std::lock_guard lock(mutex_);
  int threads = 0;
  if (pool_ && !stopping_) threads = most_threads(settings_.feed);
  for (const Reader& reader : readers_) threads += reader.maybe_process ? reader.threads : 0;
  return tuner_ ? std::min(threads, static_cast<int>(tuner_->wanted())) : threads;
}

FeedActivity::Busy FeedSupervisor::busy() const {
  const std::lock_guard lock(mutex_);
  return activity_.busy();
}

uint64_t FeedSupervisor::bad_samples() const {
  const std::lock_guard lock(mutex_);
  return bad_samples_.count();
}

uint64_t FeedSupervisor::bad_samples_before(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  (void)count_bad_samples();  // a verdict is said again, to the supervisor's thread
  return bad_samples_.count_before(ticket);
}

uint64_t FeedSupervisor::deaths() const {
  const std::lock_guard lock(mutex_);
  return budget_.deaths();
}

uint64_t FeedSupervisor::hangs() const {
  const std::lock_guard lock(mutex_);
  return hangs_;
}

std::vector<uint64_t> FeedSupervisor::quarantined() const {
  const std::lock_guard lock(mutex_);
  return quarantine_ ? quarantine_->samples() : settings_.quarantined;
}

size_t FeedSupervisor::outside_producers() const {
  const std::lock_guard lock(mutex_);
  return outside_.size();
}

std::vector<int> FeedSupervisor::process_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ids;
  for (const Reader& reader : readers_)
    if (reader.maybe_process) ids.push_back(reader.maybe_process->pid());
  return ids;
}

}  // namespace stoker::feeder
