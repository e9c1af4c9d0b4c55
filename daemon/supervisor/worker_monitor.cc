// The supervisor's thread: who died, who hangs, who is to be started again.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "daemon/supervisor/feed_supervisor.h"
#include "daemon/supervisor/process_state.h"
#include "shared/base/log.h"

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kMaxWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr std::chrono::nanoseconds kMaxDelay = 5s;
constexpr std::chrono::nanoseconds kHealthyRunTime =
    60s;  // after so long a life the delay begins anew
constexpr std::chrono::nanoseconds kKillWarningDelay = 5s;

}  // namespace

Status FeedSupervisor::supervise(std::stop_token stop) {
  while (!stop.stop_requested() && !ring_.closed()) {
    wait_for_exits(kMaxWait);
    STOKER_RETURN_IF_ERROR(check_workers());  // which stops all
    sample_error_file_.write();               // not while others wait for mutex_
  }
  return {};
}

Status FeedSupervisor::check_workers() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return {};
  for (Worker& worker : workers_) check_worker(worker);
  external_.check_producers(clock_.monotonic());
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

// Also ends when a process is to be started again.
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
        timeout = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(worker.start_again - now),
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
  if (worker.done || clock_.monotonic() < worker.start_again) return;
  const Status spawned = spawn(worker);
  if (spawned.ok()) return;
  log_error("worker process spawn failed", {{"error", spawned.to_string()}});
  schedule_restart(worker);
  const Status limit_status = budget_.record_crash({.now = clock_.monotonic(),
                                                    .published = ring_.counters().published,
                                                    .cause = spawned.to_string()});
  if (!limit_status.ok()) coordinator_.request_stop(limit_status);
}

void FeedSupervisor::watch_progress(Worker& worker) {
  const int pid = worker.maybe_process->pid();
  const auto now = clock_.monotonic();
  if (!worker.maybe_killed) {
    if (worker.monitor.has_timed_out(
            {.now = now, .cpu_time = cpu_time(pid), .progress = ring_.progress(worker.producer)}))
      kill_timed_out(worker);
    return;
  }
  // Its tickets stay with it: until the kernel has ended it, it may still write.
  if (worker.outlives_kill || now - *worker.maybe_killed < kKillWarningDelay) return;
  worker.outlives_kill = true;
  log_error("worker process unkillable", {{"pid", pid},
                                          {"state", process_state(pid)},
                                          {"tickets", ring_.progress(worker.producer).claims}});
}

void FeedSupervisor::kill_timed_out(Worker& worker) {
  const int pid = worker.maybe_process->pid();
  log_warn("worker process timed out",
           {{"pid", pid},
            {"duration_seconds", seconds_between({}, worker.monitor.idle_time())},
            {"state", worker.monitor.is_cpu_bound() ? "computing" : process_state(pid)},
            {"tickets", ring_.progress(worker.producer).claims}});
  worker.maybe_killed = clock_.monotonic();
  ++timeouts_;
  worker.maybe_process->kill();
}

std::string FeedSupervisor::crash_cause(const Worker& worker, const WorkerProcess::End& end) const {
  std::string cause = end.to_string();
  if (worker.maybe_killed) cause += " because it hung";
  if (const auto call = table_->take_denied_syscall(worker.number))
    cause += " for system call " + std::to_string(*call) +
             ", which is forbidden to workers (feed.sandbox)";
  return cause;
}

// The process is reaped: only now may its tickets go to others, and only after the suspects are
// named.
void FeedSupervisor::handle_crash(Worker& worker, const WorkerProcess::End& end) {
  const std::string cause = crash_cause(worker, end);
  const bool waited = worker.maybe_killed && !worker.monitor.is_cpu_bound();
  worker.maybe_process.reset();
  if (end.is_sandbox_refused()) return end_without_sandbox(worker);
  const auto quarantined = quarantine_->assess_crash(
      worker.number, cause,
      waited ? Quarantine::CrashAttribution::kNone : Quarantine::CrashAttribution::kPossible);
  const uint64_t handed_back = ring_.requeue(worker.producer);
  if (end.clean() && handed_back == 0) {
    worker.done = true;
    return;
  }
  log_warn(
      "worker process crashed",
      {{"cause", cause}, {"requeued_tickets", handed_back}, {"crashes", budget_.crashes() + 1}});
  if (!quarantined.ok()) coordinator_.request_stop(quarantined.status());
  const bool made_progress = quarantined.ok() && *quarantined;
  const auto now = clock_.monotonic();
  if (made_progress || now - worker.started >= kHealthyRunTime) worker.delay = kFirstDelay;
  schedule_restart(worker);
  const Status limit_status = budget_.record_crash({.now = now,
                                                    .published = ring_.counters().published,
                                                    .is_unprovoked = !end.by_signal,
                                                    .made_progress = made_progress,
                                                    .cause = cause});
  if (!limit_status.ok()) coordinator_.request_stop(limit_status);
}

// It has read nothing, and the next one would end in the same way.
void FeedSupervisor::end_without_sandbox(Worker& worker) {
  ring_.requeue(worker.producer);
  worker.done = true;
  coordinator_.request_stop(
      Status(StatusCode::kPermission,
             "feed.sandbox: the kernel or the service manager does not permit the seccomp filter "
             "of a worker process; add SystemCallFilter=seccomp to the systemd unit (in a "
             "container: allow seccomp in its profile), or set feed.sandbox: false"));
}

void FeedSupervisor::schedule_restart(Worker& worker) {
  worker.start_again = clock_.monotonic() + worker.delay;
  worker.delay = std::min(worker.delay * 2, kMaxDelay);
}

// The counters first: of every ticket that they call consumed all reports are there by then.
Status FeedSupervisor::count_sample_errors() {
  const ring::RingCounters counters = ring_.counters();
  return sample_errors_.add_reports(ring_.drain_sample_errors(), counters);
}

}  // namespace stoker::supervisor
