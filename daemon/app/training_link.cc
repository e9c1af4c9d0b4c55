#include "daemon/app/training_link.h"

#include <unistd.h>

#include <utility>

#include "daemon/app/host_memory.h"

namespace stoker::app {
namespace {

train::Request::Kind to_change_kind(control::Command::Kind kind) {
  switch (kind) {
    case control::Command::Kind::kPause:
      return train::Request::Kind::kPause;
    case control::Command::Kind::kResume:
      return train::Request::Kind::kResume;
    case control::Command::Kind::kCheckpoint:
      return train::Request::Kind::kCheckpoint;
    case control::Command::Kind::kStop:
      return train::Request::Kind::kStop;
    case control::Command::Kind::kSet:
      return train::Request::Kind::kSetLr;
    case control::Command::Kind::kProfile:
      return train::Request::Kind::kProfile;
    case control::Command::Kind::kInspect:
      return train::Request::Kind::kInspect;
  }
  return train::Request::Kind::kPause;
}

}  // namespace

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
  if (command.kind == control::Command::Kind::kSet && command.key != "lr") {
    return done(
        Status(StatusCode::kInvalidArgument, "set: unknown key " + command.key + "; known: lr"));
  }
  mailbox_.post({to_change_kind(command.kind), command.value, std::move(done), command.profile,
                 std::move(command.inspection)});
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
