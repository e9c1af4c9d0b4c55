#include "daemon/app/training_link.h"

#include <unistd.h>

#include <utility>

#include "daemon/app/host_memory.h"

namespace stoker::app {

TrainingLink::TrainingLink(train::Mailbox& mailbox, const train::StatusBoard& board,
                           TrainingSession& session, const run::RunLayout& layout,
                           const config::FeedConfig& feed, Clock& clock)
    : mailbox_(mailbox),
      board_(board),
      session_(session),
      layout_(layout),
      feed_(feed),
      evaluator_(layout, clock),
      clock_(clock),
      started_(clock.monotonic()) {}

std::shared_ptr<const control::TrainerStatus> TrainingLink::status() const {
  auto status = std::make_shared<control::TrainerStatus>(*board_.read());
  if (status->state != control::TrainerState::kStarting) status->step = board_.step();
  session_.add_live(*status);
  status->evaluator = evaluator_.read_cached();
  status->run_dir = layout_.root();
  status->pid = ::getpid();
  const HostMemory memory = read_host_memory();
  status->memory.rss_bytes = memory.rss_bytes;
  status->memory.peak_rss_bytes = memory.peak_bytes;
  status->uptime_seconds = seconds_between(started_, clock_.monotonic());
  return status;
}

void TrainingLink::post(control::Command command, Done done) {
  mailbox_.post({std::move(command), std::move(done)});
}

Result<std::string> TrainingLink::read_inspection(uint64_t inspection, uint64_t after) {
  return session_.inspections().read(inspection, after);
}

Status TrainingLink::close_inspection(uint64_t inspection) {
  return session_.inspections().close(inspection);
}

Result<control::AttachedRing> TrainingLink::attach(pid_t pid, UniqueFd pidfd) {
  STOKER_ASSIGN_OR_RETURN(auto attachment,
                          session_.attach({.pid = pid, .pidfd = std::move(pidfd)}));
  return control::AttachedRing{.answer = supervisor::to_json(attachment, feed_),
                               .ring = std::move(attachment.ring)};
}

}  // namespace stoker::app
