#include "daemon/feeder/feed_supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kLongestWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr std::chrono::nanoseconds kLongestDelay = 5s;
constexpr std::chrono::nanoseconds kLivedWell = 60s;  // after so long a life the delay begins anew
constexpr auto kStopGrace = 900ms;
constexpr uint64_t kDeathsInVain = 20;  // so many without one new batch, and the run ends
// A reader that ends with an error of its own will do so again.
constexpr uint64_t kFailuresInVain = 3;

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
                   clock) {}

FeedSupervisor::~FeedSupervisor() { stop(); }

// ---- Starting

Status FeedSupervisor::start() {
  const bool threads = settings_.feed.isolation == config::Isolation::kThread;
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
  if (!settings_.log_file.empty()) arguments.insert(arguments.end(), {"--log", settings_.log_file});
  auto process = ReaderProcess::spawn(settings_.feed_program, arguments, ring_.fd(), table_->fd());
  if (!process.ok()) {
    ring_.reissue(reader.producer);
    return process.status();
  }
  ring_.set_producer_pid(reader.producer, process->pid());
  reader.maybe_process.emplace(*std::move(process));
  reader.started = clock_.monotonic();
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
    if (const auto end = reader.maybe_process->maybe_reap()) note_death(reader, *end);
    return;
  }
  if (reader.done || clock_.monotonic() < reader.start_again) return;
  if (const Status status = spawn(reader); !status.ok()) {
    log_error("reader process cannot be started", {{"error", status.to_string()}});
    ++deaths_in_vain_;
    plan_restart(reader);
  }
}

// The process is reaped: only now may its tickets go to others, and only after the suspects are
// named.
void FeedSupervisor::note_death(Reader& reader, const ReaderProcess::End& end) {
  reader.maybe_process.reset();
  const auto quarantined = quarantine_->judge_death(reader.number, end.to_string());
  const uint64_t handed_back = ring_.reissue(reader.producer);
  if (end.clean() && handed_back == 0) {
    reader.done = true;
    return;
  }
  ++deaths_;
  log_warn("reader process died",
           {{"cause", end.to_string()}, {"tickets_handed_on", handed_back}, {"deaths", deaths_}});
  if (!quarantined.ok()) coordinator_.request_stop(quarantined.status());
  const bool gets_further = quarantined.ok() && *quarantined;
  if (gets_further || clock_.monotonic() - reader.started >= kLivedWell) reader.delay = kFirstDelay;
  plan_restart(reader);
  count_death(end, gets_further);
}

void FeedSupervisor::count_death(const ReaderProcess::End& end, bool gets_further) {
  const uint64_t published = ring_.counters().published;
  if (gets_further || published != published_at_death_) deaths_in_vain_ = failures_in_vain_ = 0;
  published_at_death_ = published;
  ++deaths_in_vain_;
  if (!end.by_signal) ++failures_in_vain_;
  if (deaths_in_vain_ < kDeathsInVain && failures_in_vain_ < kFailuresInVain) return;
  coordinator_.request_stop(
      Status(Code::kInternal,
             "reader processes keep dying (" + std::to_string(deaths_in_vain_) +
                 " without one new batch; the last by " + end.to_string() +
                 "): their lines in the log say why, and feed.isolation: thread helps to find it"));
}

void FeedSupervisor::plan_restart(Reader& reader) {
  reader.start_again = clock_.monotonic() + reader.delay;
  reader.delay = std::min(reader.delay * 2, kLongestDelay);
}

Status FeedSupervisor::take_bad_samples() {
  const auto reports = ring_.take_bad_samples();
  return bad_samples_.take(reports, ring_.counters());
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
  return deaths_;
}

std::vector<uint64_t> FeedSupervisor::quarantined() const {
  const std::lock_guard lock(mutex_);
  return quarantine_ ? quarantine_->samples() : settings_.quarantined;
}

std::vector<int> FeedSupervisor::process_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ids;
  for (const Reader& reader : readers_)
    if (reader.maybe_process) ids.push_back(reader.maybe_process->pid());
  return ids;
}

}  // namespace stoker::feeder
