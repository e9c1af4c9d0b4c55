// TrainingControl: what the control server may ask of training. The app implements it; the server
// knows nothing else.
//
// Threads:  every method may be called from any thread and returns at once.
// Blocking: never; a command is put into a bounded mailbox that the trainer empties between steps.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/control/command.h"
#include "shared/control/trainer_status.h"

namespace stoker::control {

// The ring for a process that is to fill it.
struct AttachedRing {
  std::string answer;  // a one-line JSON object
  UniqueFd ring;       // goes with it
};

class TrainingControl {
 public:
  // A one-line JSON object that says what was done ({"step":1200,"lr":0.0001}); or why nothing was.
  using Done = std::function<void(Result<std::string>)>;

  virtual ~TrainingControl() = default;
  virtual std::shared_ptr<const TrainerStatus> status() const = 0;
  // `done` is called exactly once, on a thread of the trainer or at once. SaveCheckpoint: when the
  // checkpoint is committed or has failed. Profile: when the trace is written. kBusy through
  // `done`: the mailbox is full, nothing was done.
  virtual void post(Command command, Done done) = 0;
  // The records of an inspection after number `after`, and an end to it. Both answer at once.
  // kNotFound: no such inspection.
  virtual Result<std::string> read_inspection(uint64_t inspection, uint64_t after) = 0;
  virtual Status close_inspection(uint64_t inspection) = 0;
  // `pidfd` holds the process `pid`, which is the producer as long as it lives. kPermission: not with
  // this configuration.
  virtual Result<AttachedRing> attach(pid_t pid, UniqueFd pidfd) = 0;
};

}  // namespace stoker::control
