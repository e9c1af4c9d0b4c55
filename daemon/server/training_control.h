// TrainingControl: the interface of training to the control server, implemented by the app.
//
// Threads:  every method may be called from any thread and returns immediately.
// Blocking: never. A command is put into a bounded mailbox that the trainer drains between steps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/base/thread_registry.h"
#include "shared/control/command.h"
#include "shared/control/hello_reply.h"
#include "shared/control/trainer_status.h"

namespace stoker::server {

// The ring for an external producer.
struct AttachedRing {
  std::string answer;  // a one-line JSON object
  UniqueFd ring;       // descriptor to send with the answer
};

class TrainingControl {
 public:
  // Receives a one-line JSON object that describes the effect ({"step":1200,"lr":0.0001}), or the
  // error.
  using Done = std::function<void(Result<std::string>)>;
  // Receives the progress of a job, on one thread, before `done`: bytes of SaveCheckpoint, steps of
  // Profile.
  using OnProgress = std::function<void(uint64_t done, uint64_t total)>;

  virtual ~TrainingControl() = default;
  virtual std::shared_ptr<const control::TrainerStatus> status() const = 0;
  // The threads of this process, and those of the queues of a stream in its worker process.
  virtual ThreadList threads() const = 0;
  // `done` is called exactly once, on a trainer thread or before post() returns. SaveCheckpoint:
  // when the checkpoint is committed or has failed. Profile: when the trace is written. Pause with
  // `release`: when the memory is released. kBusy
  // through `done`: the mailbox is full, and the command was not executed.
  virtual void post(control::Command command, Done done, OnProgress on_progress) = 0;
  void post(control::Command command, Done done) {
    post(std::move(command), std::move(done), nullptr);
  }
  // The settings that can change, or those at and below `key`, each with its origin, the secret ones
  // without their values unless `with_secrets`. Returns immediately. kInvalidArgument: no such key.
  virtual Result<std::string> settings(const std::string& key, bool with_secrets) const = 0;
  // The records of an inspection after number `after`, with and without any effect on it, and the end
  // of an inspection. All return immediately. kNotFound: no such inspection.
  virtual Result<std::string> read_inspection(uint64_t inspection, uint64_t after) = 0;
  virtual Result<std::string> peek_inspection(uint64_t inspection, uint64_t after) = 0;
  virtual Status close_inspection(uint64_t inspection) = 0;
  // `pidfd` refers to the process `pid`, which remains the producer for its lifetime. kPermission:
  // not with this configuration.
  virtual Result<AttachedRing> attach(pid_t pid, UniqueFd pidfd) = 0;
};

// The status as clients get it: with the run, and the counters of the control server.
inline control::TrainerStatus complete_status(const TrainingControl& training,
                                              const control::RunIdentity& run,
                                              const control::TrainerStatus::Control& counters) {
  const auto published = training.status();
  control::TrainerStatus status = published != nullptr ? *published : control::TrainerStatus();
  status.control = counters;
  status.run_dir = run.run_dir;
  status.run_dir_id = run.run_dir_id;
  status.pid = run.pid;
  return status;
}

}  // namespace stoker::server
