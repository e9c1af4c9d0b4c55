// TrainingSession: training from the configuration and the data to its end: one trainer after another,
// each with parts of its own, where the run goes back to a checkpoint or its data grows.
//
// Threads:  run() on the trainer's thread; all else from any thread at any time.
// Blocking: run() until training has ended and everything it saved is on disk. Where training must
//           go back to its last checkpoint (train.on_nonfinite: rollback), run() does all but
//           opening the data again; where more data joins (data.NAME.grow), it does all.
// Errors:   whatever the parts report; exit_code_for() says how the process should end.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/app/command_line.h"
#include "daemon/supervisor/external_producers.h"
#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/status_board.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/control/trainer_status.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::train {
struct TrainerDependencies;
enum class TrainerOutcome;
struct InspectionDependencies;
}  // namespace stoker::train

namespace stoker::app {

class DatasetRefresher;
class TrainingPreparation;
struct TrainingParts;

class TrainingSession {
 public:
  // All must outlive this object.
  TrainingSession(const config::Config& config, const CommandLine& command,
                  const run::RunLayout& layout, train::Mailbox& mailbox, train::StatusBoard& board,
                  Clock& clock);
  ~TrainingSession();

  // `on_training` is called once, when all is prepared: readers fill the ring, and the trainer waits
  // for the first batch. Finished or stopped: what fails is a Status.
  Result<run::RunOutcome> run(std::stop_token stop, const std::function<void()>& on_training);

  // Also ends the preparation, during which the mailbox is not read yet. From any thread.
  void request_stop();

  // Fills the parts of the status that others than the trainer know: ring, readers, checkpoint
  // writer.
  void add_live(control::TrainerStatus& status) const;
  // kBusy: there is no ring yet. Otherwise as FeedSupervisor.
  Result<supervisor::Attachment> attach(supervisor::ExternalProcess process);
  train::InspectionBoard& inspections() {
    return inspections_;
  }                       // over all the trainers of the session
  bool prepared() const;  // false while only looking at data; then a stop may simply leave

 private:
  Result<train::TrainerOutcome> train(TrainingParts& parts, std::stop_token stop);
  Status roll_back_to_checkpoint(TrainingParts& parts);
  train::TrainerDependencies dependencies(TrainingParts& parts);
  train::InspectionDependencies inspection_dependencies(TrainingParts& parts);
  TrainingParts* publish_components(
      std::unique_ptr<TrainingParts> parts);  // shows them to others; null: none

  const config::Config& config_;
  const CommandLine& command_;
  const run::RunLayout& layout_;
  train::Mailbox& mailbox_;
  train::StatusBoard& board_;
  Clock& clock_;

  train::InspectionBoard inspections_;  // own synchronisation

  const std::unique_ptr<DatasetRefresher> refresher_;  // null: data.train stays as it is
  const std::unique_ptr<TrainingPreparation> preparation_;

  mutable std::mutex mutex_;
  std::unique_ptr<TrainingParts> parts_;  // guarded by mutex_ while it is set or reset; its parts
                                          // are used by the trainer's thread
};

}  // namespace stoker::app
