#include "daemon/feeder/feed_supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/feeder/process_state.h"
#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kLongestWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr std::chrono::nanoseconds kLongestDelay = 5s;
constexpr std::chrono::nanoseconds kLivedWell = 60s;  // after so long a life the delay begins anew
constexpr auto kStopGrace = 900ms;
constexpr std::chrono::nanoseconds kKillTakesLong = 5s;

std::chrono::nanoseconds hang_limit(const config::FeedConfig& feed) {
  return std::chrono::nanoseconds(static_cast<int64_t>(feed.hang_seconds * 1e9));
}

// The ring's table has room for the readers first.
size_t most_outside(const config::FeedConfig& feed) {
  const bool alone = feed.source == config::FeedSource::kOutside;
  const int own = alone ? 0 : std::clamp(feed.processes, 1, static_cast<int>(ring::kMaxProducers));
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
      bad_samples_(settings_.feed, dataset, plan.settings().batch, settings_.bad_sample_path,
                   clock),
      budget_(static_cast<uint64_t>(settings_.feed.deaths_per_minute)),
      outside_(ring, most_outside(settings_.feed), hang_limit(settings_.feed)) {}

FeedSupervisor::~FeedSupervisor() { stop(); }

// ---- Starting

Status FeedSupervisor::start() {
  const bool threads = settings_.feed.isolation == config::Isolation::kThread;
  if (settings_.feed.source != config::FeedSource::kOutside)
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
  guarded_.emplace(dataset_, *table_, std::nullopt);
  pool_.emplace(ring_, producer, *guarded_, plan_);
  pool_->start(settings_.feed.readers, coordinator_);
  return {};
}

Status FeedSupervisor::start_processes() {
  if (settings_.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(settings_.feed_program, find_feed_program());
  }
  const int processes =
      std::clamp(settings_.feed.processes, 1, std::max(1, settings_.feed.readers));
  const int threads = std::max(1, settings_.feed.readers);
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
  std::vector<std::string> arguments{"--config",        settings_.config_path,
                                     "--index-dir",     settings_.index_dir,
                                     "--fingerprint",   dataset_.fingerprint(),
                                     "--ring-fd",       std::to_string(kRingFd),
                                     "--quarantine-fd", std::to_string(kQuarantineFd),
                                     "--reader",        std::to_string(reader.number),
                                     "--producer",      std::to_string(reader.producer.index),
                                     "--generation",    std::to_string(reader.producer.generation),
                                     "--threads",       std::to_string(reader.threads),
                                     "--parent",        std::to_string(::getpid())};
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
  log_info("reader process started", {{"pid", reader.maybe_process->pid()},
                                      {"threads", reader.threads},
                                      {"generation", reader.producer.generation}});
  return {};
}

// ---- Watching

Status FeedSupervisor::supervise(std::stop_token stop) {
  while (!stop.stop_requested() && !ring_.closed()) {
    wait_for_deaths(kLongestWait);
    const std::lock_guard lock(mutex_);
    if (stopping_) break;
    for (Reader& reader : readers_) look_after(reader);
    outside_.look_after(clock_.monotonic());
    STOKER_RETURN_IF_ERROR(take_bad_samples());  // which stops all
  }
  return {};
}

// Also ends when a process is to be started again.
void FeedSupervisor::wait_for_deaths(std::chrono::milliseconds timeout) const {
  std::vector<pollfd> entries;
  {
    const std::lock_guard lock(mutex_);
    const auto now = clock_.monotonic();
    for (const int pidfd : outside_.pidfds())
      entries.push_back({.fd = pidfd, .events = POLLIN, .revents = 0});
    for (const Reader& reader : readers_) {
      if (reader.maybe_process)
        entries.push_back({.fd = reader.maybe_process->pidfd(), .events = POLLIN, .revents = 0});
      else if (!reader.done && !stopping_)
        timeout = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(reader.start_again - now),
                             0ms, timeout);
    }
  }
  ::poll(entries.data(), entries.size(), static_cast<int>(timeout.count()));
}

void FeedSupervisor::look_after(Reader& reader) {
  if (reader.maybe_process) {
    const auto end = reader.maybe_process->maybe_reap();
    return end ? note_death(reader, *end) : watch_progress(reader);
  }
  if (reader.done || clock_.monotonic() < reader.start_again) return;
  const Status spawned = spawn(reader);
  if (spawned.ok()) return;
  log_error("reader process cannot be started", {{"error", spawned.to_string()}});
  plan_restart(reader);
  const Status go_on = budget_.note_death({.now = clock_.monotonic(),
                                           .published = ring_.counters().published,
                                           .cause = spawned.to_string()});
  if (!go_on.ok()) coordinator_.request_stop(go_on);
}

void FeedSupervisor::watch_progress(Reader& reader) {
  const int pid = reader.maybe_process->pid();
  const auto now = clock_.monotonic();
  if (!reader.maybe_killed) {
    if (reader.watch.hangs({.now = now,
                            .cpu_time = cpu_time_of(pid),
                            .progress = ring_.progress(reader.producer)}))
      kill_hung(reader);
    return;
  }
  // Its tickets stay with it: until the kernel has ended it, it may still write.
  if (reader.outlives_kill || now - *reader.maybe_killed < kKillTakesLong) return;
  reader.outlives_kill = true;
  log_error("reader process cannot be killed; its batches wait until the kernel ends it",
            {{"pid", pid},
             {"state", process_state(pid)},
             {"tickets", ring_.progress(reader.producer).claims}});
}

void FeedSupervisor::kill_hung(Reader& reader) {
  const int pid = reader.maybe_process->pid();
  log_warn("reader process hangs and is killed",
           {{"pid", pid},
            {"seconds", seconds_between({}, reader.watch.still_for())},
            {"state", reader.watch.computes() ? "computing" : process_state(pid)},
            {"tickets", ring_.progress(reader.producer).claims}});
  reader.maybe_killed = clock_.monotonic();
  ++hangs_;
  reader.maybe_process->kill();
}

std::string FeedSupervisor::cause_of(const Reader& reader, const ReaderProcess::End& end) const {
  std::string cause = end.to_string();
  if (reader.maybe_killed) cause += " because it hung";
  if (const auto call = table_->maybe_take_forbidden_call(reader.number))
    cause += " for system call " + std::to_string(*call) +
             ", which is forbidden to readers (feed.confined)";
  return cause;
}

// The process is reaped: only now may its tickets go to others, and only after the suspects are
// named.
void FeedSupervisor::note_death(Reader& reader, const ReaderProcess::End& end) {
  const std::string cause = cause_of(reader, end);
  const bool waited = reader.maybe_killed && !reader.watch.computes();
  reader.maybe_process.reset();
  const auto quarantined = quarantine_->judge_death(
      reader.number, cause, waited ? Quarantine::Blame::kNone : Quarantine::Blame::kPossible);
  const uint64_t handed_back = ring_.reissue(reader.producer);
  if (end.clean() && handed_back == 0) {
    reader.done = true;
    return;
  }
  log_warn(
      "reader process died",
      {{"cause", cause}, {"tickets_handed_on", handed_back}, {"deaths", budget_.deaths() + 1}});
  if (!quarantined.ok()) coordinator_.request_stop(quarantined.status());
  const bool gets_further = quarantined.ok() && *quarantined;
  const auto now = clock_.monotonic();
  if (gets_further || now - reader.started >= kLivedWell) reader.delay = kFirstDelay;
  plan_restart(reader);
  const Status go_on = budget_.note_death({.now = now,
                                           .published = ring_.counters().published,
                                           .by_itself = !end.by_signal,
                                           .gets_further = gets_further,
                                           .cause = cause});
  if (!go_on.ok()) coordinator_.request_stop(go_on);
}

void FeedSupervisor::plan_restart(Reader& reader) {
  reader.start_again = clock_.monotonic() + reader.delay;
  reader.delay = std::min(reader.delay * 2, kLongestDelay);
}

Status FeedSupervisor::take_bad_samples() {
  const auto reports = ring_.take_bad_samples();
  return bad_samples_.take(reports, ring_.counters());
}

Result<Attachment> FeedSupervisor::attach(OutsideProcess process) {
  if (settings_.feed.source == config::FeedSource::kReaders)
    return Status(Code::kPermission,
                  "this run's data come from its own readers; feed.source: both or outside lets "
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
    log_warn("reader process does not end and is killed", {{"pid", reader.maybe_process->pid()}});
    reader.maybe_process.reset();
  }
  // Noted, not judged: whoever calls stop() has decided how the run ends.
  if (const Status status = take_bad_samples(); !status.ok())
    log_warn("bad samples at the end", {{"verdict", status.message()}});
}

// ---- Asking

int FeedSupervisor::live_readers() const {
  const std::lock_guard lock(mutex_);
  if (pool_) return stopping_ ? 0 : settings_.feed.readers;
  int threads = 0;
  for (const Reader& reader : readers_) threads += reader.maybe_process ? reader.threads : 0;
  return threads;
}

uint64_t FeedSupervisor::bad_samples() const {
  const std::lock_guard lock(mutex_);
  return bad_samples_.bad_samples();
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
