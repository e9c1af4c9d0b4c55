#include "daemon/daemon_app/training_link.h"

#include <unistd.h>

#include <utility>

#include "daemon/daemon_app/host_memory.h"

namespace stoker::daemon_app {
namespace {

train::Request::Kind kind_of(control_server::Command::Kind kind) {
  switch (kind) {
    case control_server::Command::Kind::kPause:
      return train::Request::Kind::kPause;
    case control_server::Command::Kind::kResume:
      return train::Request::Kind::kResume;
    case control_server::Command::Kind::kCheckpoint:
      return train::Request::Kind::kCheckpoint;
    case control_server::Command::Kind::kStop:
      return train::Request::Kind::kStop;
    case control_server::Command::Kind::kSet:
      return train::Request::Kind::kSetLr;
    case control_server::Command::Kind::kProfile:
      return train::Request::Kind::kProfile;
    case control_server::Command::Kind::kTap:
      return train::Request::Kind::kTap;
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
  status->evaluator = evaluator_.look();
  status->run_dir = layout_.root();
  status->pid = ::getpid();
  const HostMemory memory = read_host_memory();
  status->memory.resident_bytes = memory.resident_bytes;
  status->memory.resident_peak_bytes = memory.peak_bytes;
  status->uptime_s = seconds_between(started_, clock_.monotonic());
  return status;
}

void TrainingLink::post(control_server::Command command, Done done) {
  if (command.kind == control_server::Command::Kind::kSet && command.key != "lr") {
    return done(Status(Code::kInvalidArgument, "set: unknown key " + command.key + "; known: lr"));
  }
  mailbox_.post({kind_of(command.kind), command.value, std::move(done), command.profile,
                 std::move(command.tap)});
}

Result<std::string> TrainingLink::read_tap(uint64_t tap, uint64_t after) {
  return session_.taps().read(tap, after);
}

Status TrainingLink::close_tap(uint64_t tap) { return session_.taps().close(tap); }

Result<control_server::AttachedRing> TrainingLink::attach(pid_t pid, UniqueFd pidfd) {
  STOKER_ASSIGN_OR_RETURN(auto attachment,
                          session_.attach({.pid = pid, .pidfd = std::move(pidfd)}));
  return control_server::AttachedRing{.answer = feeder::to_json(attachment, feed_),
                                      .ring = std::move(attachment.ring)};
}

}  // namespace stoker::daemon_app
