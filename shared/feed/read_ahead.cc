#include "shared/feed/read_ahead.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace stoker::feed {
namespace {

// Hysteresis: a few waiting reads do not turn read-ahead on, and it is turned off only when waiting
// reads have become rare.
constexpr double kStartFraction = 0.15;
constexpr double kStopFraction = 0.03;
constexpr double kMargin = 2;

void update_mean(double& mean, double value) {
  mean += (value - mean) / ReadAheadTuner::kMeanWindow;
}

}  // namespace

void ReadAheadTuner::record_read(std::chrono::nanoseconds waited) {
  const std::lock_guard lock(mutex_);
  update_mean(waited_ns_, static_cast<double>(waited.count()));
  update_mean(waiting_, waited > kMinWait ? 1 : 0);
  decide();
}

void ReadAheadTuner::record_work(std::chrono::nanoseconds worked) {
  const std::lock_guard lock(mutex_);
  const auto ns = static_cast<double>(worked.count());
  if (worked_ns_ == 0) worked_ns_ = ns;
  update_mean(worked_ns_, ns);
  decide();
}

void ReadAheadTuner::decide() {
  const bool is_on = wanted() > 0;
  const double work = std::max(worked_ns_, 1.0);
  const bool is_waiting =
      waiting_ > (is_on ? kStopFraction : kStartFraction) && waited_ns_ >= kMinShare * work;
  const double wanted = is_waiting ? std::ceil(kMargin * workers_ * waited_ns_ / work) : 0;
  wanted_.store(static_cast<uint32_t>(std::min<double>(wanted, max_)), std::memory_order_relaxed);
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxAutoReads = 32;

// Number of voluntary context switches of the calling thread. Preemption is not counted because it
// is not a wait.
long num_thread_waits() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

ReadAheadOptions make_read_ahead_options(const config::FeedConfig& feed, uint32_t number,
                                         uint32_t of) {
  const auto reads = static_cast<uint32_t>(feed.read_ahead.value_or(kMaxAutoReads));
  const uint32_t share = reads / of + (number < reads % of ? 1 : 0);
  return {.max_reads = static_cast<int>(share),
          .adapts = !feed.read_ahead,
          .memory_bytes = (static_cast<uint64_t>(feed.read_ahead_mib) << 20) / of};
}

ReadAhead::ReadAhead(const ReadAheadOptions& options, uint32_t workers,
                     const data::SampleFiles* maybe_files, const data::order::SamplePlan& plan)
    : options_(options),
      maybe_files_(maybe_files),
      plan_(plan),
      budget_(options.memory_bytes),
      tuner_(workers, static_cast<uint32_t>(options.max_reads)) {}

std::chrono::nanoseconds ReadAhead::fetch(RowTask& row, std::optional<std::stop_token> maybe_stop) {
  const uint32_t before = wanted();
  const uint64_t sample = plan_.at(row.batch->claim().ticket, row.first).sample;
  const long is_waiting = num_thread_waits();
  const auto start = Clock::now();
  std::chrono::nanoseconds for_room{0};
  try {
    row.maybe_bytes = maybe_stop
                          ? std::make_unique<data::files::PrefetchedBytes>(budget_, *maybe_stop)
                          : std::make_unique<data::files::PrefetchedBytes>(budget_);
    if (maybe_files_ != nullptr) maybe_files_->prefetch(sample, *row.maybe_bytes);
    for_room = row.maybe_bytes->waited_for_room();
  } catch (const std::bad_alloc&) {
    row.maybe_bytes.reset();  // the decoding thread reads the sample again and reports the error
  }
  const std::chrono::nanoseconds took = Clock::now() - start - for_room;
  if (options_.adapts) {
    tuner_.record_read(num_thread_waits() == is_waiting ? std::chrono::nanoseconds(0) : took);
    wake_waiting_reads(before);
  }
  return took;
}

void ReadAhead::record_work(std::chrono::nanoseconds worked) {
  if (!options_.adapts) return;
  const uint32_t before = wanted();
  tuner_.record_work(worked);
  wake_waiting_reads(before);
}

void ReadAhead::wake_waiting_reads(uint32_t before) {
  const uint32_t now = wanted();
  if (now == before) return;
  // A thread that has read the number but has not started to wait yet holds the lock.
  { const std::lock_guard lock(mutex_); }
  if (now > before) wanted_.notify_all();
  if (now == 0) row_added_.notify_all();
}

void ReadAhead::put(RowTask row) {
  {
    const std::lock_guard lock(mutex_);
    rows_.push_back(std::move(row));
    queued_.store(rows_.size(), std::memory_order_relaxed);
  }
  row_added_.notify_one();
}

std::optional<RowTask> ReadAhead::try_take() {
  if (queued_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (rows_.empty()) return std::nullopt;
  RowTask row = std::move(rows_.front());
  rows_.pop_front();
  queued_.store(rows_.size(), std::memory_order_relaxed);
  return row;
}

void ReadAhead::wait_for_row(std::chrono::milliseconds timeout, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  row_added_.wait_for(lock, stop, timeout,
                      [this] { return !rows_.empty() || ended_ || wanted() == 0; });
}

void ReadAhead::wait_until_wanted(uint32_t number, std::chrono::milliseconds timeout,
                                  const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  wanted_.wait_for(lock, stop, timeout, [&] { return ended_ || wanted() > number; });
}

void ReadAhead::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  row_added_.notify_all();
  wanted_.notify_all();
}

}  // namespace stoker::feed
