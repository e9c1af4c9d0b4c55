// The supervisor's thread: who died, who hangs, who is to be started again.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "daemon/feeder/feed_supervisor.h"
#include "daemon/feeder/process_state.h"
#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kLongestWait = 100ms;
constexpr std::chrono::nanoseconds kFirstDelay = 100ms;
constexpr std::chrono::nanoseconds kLongestDelay = 5s;
constexpr std::chrono::nanoseconds kLivedWell = 60s;  // after so long a life the delay begins anew
constexpr std::chrono::nanoseconds kKillTakesLong = 5s;

}  // namespace

Status FeedSupervisor::supervise(std::stop_token stop) {
  while (!stop.stop_requested() && !ring_.closed()) {
    wait_for_deaths(kLongestWait);
    STOKER_RETURN_IF_ERROR(look_around());  // which stops all
    bad_sample_file_.write();               // not while others wait for mutex_
  }
  return {};
}

Status FeedSupervisor::look_around() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return {};
  for (Reader& reader : readers_) look_after(reader);
  outside_.look_after(clock_.monotonic());
  const ring::RingCounters counters = ring_.counters();
  activity_.look(clock_.monotonic(), counters);
  tune_readers(counters);
  return count_bad_samples();
}

void FeedSupervisor::tune_readers(const ring::RingCounters& counters) {
  if (!tuner_) return;
  const uint32_t before = tuner_->wanted();
  const uint32_t wanted = tuner_->look({.now = clock_.monotonic(),
                                        .ready = counters.ready,
                                        .slots = ring_.slots(),
                                        .consumed = counters.consumed});
  if (wanted == before) return;
  ring_.set_wanted_readers(wanted);
  log_info("worker count adjusted", {{"num_workers", wanted}, {"previous", before}});
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
  log_error("worker process spawn failed", {{"error", spawned.to_string()}});
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
  log_error("worker process unkillable", {{"pid", pid},
                                          {"state", process_state(pid)},
                                          {"tickets", ring_.progress(reader.producer).claims}});
}

void FeedSupervisor::kill_hung(Reader& reader) {
  const int pid = reader.maybe_process->pid();
  log_warn("worker process timed out",
           {{"pid", pid},
            {"duration_seconds", seconds_between({}, reader.watch.still_for())},
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
             ", which is forbidden to readers (feed.sandbox)";
  return cause;
}

// The process is reaped: only now may its tickets go to others, and only after the suspects are
// named.
void FeedSupervisor::note_death(Reader& reader, const ReaderProcess::End& end) {
  const std::string cause = cause_of(reader, end);
  const bool waited = reader.maybe_killed && !reader.watch.computes();
  reader.maybe_process.reset();
  if (end.is_sandbox_refused()) return end_without_sandbox(reader);
  const auto quarantined = quarantine_->judge_death(
      reader.number, cause, waited ? Quarantine::Blame::kNone : Quarantine::Blame::kPossible);
  const uint64_t handed_back = ring_.reissue(reader.producer);
  if (end.clean() && handed_back == 0) {
    reader.done = true;
    return;
  }
  log_warn(
      "worker process crashed",
      {{"cause", cause}, {"requeued_tickets", handed_back}, {"crashes", budget_.deaths() + 1}});
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

// It has read nothing, and the next one would end in the same way.
void FeedSupervisor::end_without_sandbox(Reader& reader) {
  ring_.reissue(reader.producer);
  reader.done = true;
  coordinator_.request_stop(
      Status(Code::kPermission,
             "feed.sandbox: the kernel or the service manager does not permit the seccomp filter "
             "of a reader process; add SystemCallFilter=seccomp to the systemd unit (in a "
             "container: allow seccomp in its profile), or set feed.sandbox: false"));
}

void FeedSupervisor::plan_restart(Reader& reader) {
  reader.start_again = clock_.monotonic() + reader.delay;
  reader.delay = std::min(reader.delay * 2, kLongestDelay);
}

// The counters first: of every ticket that they call consumed all reports are there by then.
Status FeedSupervisor::count_bad_samples() {
  const ring::RingCounters counters = ring_.counters();
  return bad_samples_.take(ring_.take_bad_samples(), counters);
}

}  // namespace stoker::feeder
