// TrainingLink: the control server's view of training: commands into the trainer's mailbox, status
// from its board.
//
// Threads: every method from any thread; nothing here waits for the trainer.
#pragma once

#include <memory>

#include "daemon/app/evaluator_status_reader.h"
#include "daemon/app/training_session.h"
#include "daemon/control/training_control.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/status_board.h"

namespace stoker::app {

class TrainingLink final : public control::TrainingControl {
 public:
  // All must outlive this object.
  TrainingLink(train::Mailbox& mailbox, const train::StatusBoard& board, TrainingSession& session,
               const run::RunLayout& layout, const config::FeedConfig& feed, Clock& clock);

  std::shared_ptr<const control::TrainerStatus> status() const override;
  void post(control::Command command, Done done) override;
  Result<std::string> read_inspection(uint64_t inspection, uint64_t after) override;
  Status close_inspection(uint64_t inspection) override;
  Result<control::AttachedRing> attach(pid_t pid, UniqueFd pidfd) override;

 private:
  train::Mailbox& mailbox_;
  const train::StatusBoard& board_;
  TrainingSession& session_;
  const run::RunLayout& layout_;
  const config::FeedConfig& feed_;
  EvaluatorStatusReader evaluator_;
  Clock& clock_;
  const std::chrono::nanoseconds started_;
};

}  // namespace stoker::app
