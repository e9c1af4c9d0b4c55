#include "daemon/supervisor/external_producers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/feed/worker_process.h"
#include "shared/ring/ring_layout.h"

namespace stoker::supervisor {

std::string to_json(const Attachment& attachment, const config::FeedConfig& feed) {
  const bool alone = feed.producers == config::ProducerMode::kExternal;
  return boost::json::serialize(
      boost::json::object{{"producer", attachment.producer.index},
                          {"generation", attachment.producer.generation},
                          {"format", ring::kVersion},
                          {"mode", alone ? "external" : "both"},
                          {"timeout_seconds", feed.worker_timeout_seconds.value_or(0)}});
}

Result<Attachment> ExternalProducers::attach(ExternalProcess process) {
  if (producers_.size() >= max_)
    return Status(StatusCode::kBusy, std::to_string(producers_.size()) +
                                         " external producers are attached, the maximum");
  UniqueFd ring(::fcntl(ring_.fd(), F_DUPFD_CLOEXEC, 0));
  if (!ring.valid()) return Status::from_errno(errno, "pass the ring to an external producer");
  STOKER_ASSIGN_OR_RETURN(const ring::ProducerId id,
                          ring_.add_producer("pid " + std::to_string(process.pid)));
  ring_.set_producer_pid(id, process.pid);
  log_info("external producer attached",
           {{"pid", process.pid}, {"producer_index", id.index}, {"generation", id.generation}});
  producers_.push_back(
      {.process = std::move(process), .id = id, .monitor = ProgressMonitor(worker_timeout_)});
  return Attachment{.producer = id, .ring = std::move(ring)};
}

void ExternalProducers::check_producers(std::chrono::nanoseconds now) {
  std::erase_if(producers_, [this](const Producer& one) { return detach_if_ended(one); });
  for (Producer& producer : producers_) watch_progress(producer, now);
}

bool ExternalProducers::detach_if_ended(const Producer& producer) {
  pollfd ended{.fd = producer.process.pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) != 1) return false;
  const uint64_t num_requeued = ring_.requeue(producer.id);
  log_info("external producer exited",
           {{"pid", producer.process.pid}, {"requeued_tickets", num_requeued}});
  return true;
}

void ExternalProducers::watch_progress(Producer& producer, std::chrono::nanoseconds now) {
  if (producer.killed) return;
  if (producer.is_detached) {
    (void)ring_.retire(producer.id);  // what it was claiming when it was detached
    return;
  }
  ring::ProducerProgress progress = ring_.progress(producer.id);
  // It can wait for its own data before it claims a ticket, which is not a timeout.
  if (progress.claims == 0) progress.polls = static_cast<uint64_t>(now.count());
  if (!producer.monitor.has_timed_out({.now = now, .progress = progress})) return;
  const int pid = producer.process.pid;
  // ESRCH: it has ended meanwhile, which its pidfd will show.
  producer.killed =
      ::syscall(SYS_pidfd_send_signal, producer.process.pidfd.get(), SIGKILL, nullptr, 0) == 0 ||
      errno == ESRCH;
  const std::string outcome =
      producer.killed ? "killed" : "detached, " + Status::from_errno(errno, "kill").message();
  // Otherwise the run would wait for these tickets forever.
  producer.is_detached = !producer.killed;
  const uint64_t num_requeued = producer.is_detached ? ring_.retire(producer.id) : 0;
  log_warn("external producer timed out",
           {{"pid", pid},
            {"result", outcome},
            {"duration_seconds", seconds_between({}, producer.monitor.idle_time())},
            {"state", feed::process_state(pid)},
            {"tickets", progress.claims},
            {"requeued_tickets", num_requeued}});
}

size_t ExternalProducers::size() const {
  return static_cast<size_t>(std::ranges::count(producers_, false, &Producer::is_detached));
}

std::vector<int> ExternalProducers::pidfds() const {
  std::vector<int> fds;
  for (const Producer& producer : producers_) fds.push_back(producer.process.pidfd.get());
  return fds;
}

}  // namespace stoker::supervisor
