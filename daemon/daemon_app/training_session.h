// TrainingSession: one run from its data to its end: index, start point, ring, readers, model,
// trainer, checkpoints, metrics.
//
// Threads:  run() on the trainer's thread; all else from any thread at any time.
// Blocking: run() until training has ended and everything it saved is on disk. Where training must
//           go back to its last checkpoint (train.on_nonfinite: rollback), run() does all but
//           opening the data again; where more data joins (data.NAME.grow), it does all.
// Errors:   whatever the parts report; exit_code_of() says how the process should end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/daemon_app/command_line.h"
#include "daemon/feeder/outside_producers.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/status_board.h"
#include "daemon/train/tap_board.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/exit_code.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/control/trainer_status.h"
#include "shared/dataset/dataset.h"
#include "shared/feed/sample_weights.h"
#include "shared/run/run_layout.h"

namespace stoker::daemon_app {

enum class Outcome { kFinished, kStopped };

class GrowingData;

class TrainingSession {
 public:
  // All must outlive this object.
  TrainingSession(const config::Config& config, const CommandLine& command,
                  const run::RunLayout& layout, train::Mailbox& mailbox, train::StatusBoard& board,
                  Clock& clock);
  ~TrainingSession();

  // `on_training` is called once, when all is prepared: readers fill the ring, and the trainer waits
  // for the first batch.
  Result<Outcome> run(std::stop_token stop, const std::function<void()>& on_training);

  // Ends the preparing too, where nobody reads the mailbox yet. From any thread.
  void request_stop() { stop_asked_ = true; }

  // Fills the parts of the status that others than the trainer know: ring, readers, checkpoint
  // writer.
  void add_live(control::TrainerStatus& status) const;
  // kBusy: there is no ring yet. Otherwise as FeedSupervisor.
  Result<feeder::Attachment> attach(feeder::OutsideProcess process);
  train::TapBoard& taps() { return taps_; }  // over all the trainers of the session
  bool prepared() const;  // false while only looking at data; then a stop may simply leave

 private:
  struct Parts;
  enum class Ended { kFinished, kStopped, kRollBack, kNewData };
  using StartPoint = std::optional<checkpoint::VerifiedCheckpoint>;
  // `start`: where it goes on from, which matters for data that grows.
  Result<std::unique_ptr<dataset::Dataset>> open_data(const StartPoint& start);
  Result<std::unique_ptr<Parts>> prepare(std::unique_ptr<dataset::Dataset> data,
                                         const std::string& resume);  // null: opens it
  Status restore(Parts& parts, const StartPoint& start);
  Status settle_growth(Parts& parts, const StartPoint& start);
  Status go_on(Parts& parts, Ended ended);
  Status open_outputs(Parts& parts);
  Status start_feed(Parts& parts);
  Result<Ended> train(Parts& parts, std::stop_token stop);
  Parts* hold(std::unique_ptr<Parts> parts);  // shows them to add_live(); null: none
  Status wind_up(Parts& parts);
  Status check_stop() const;

  const config::Config& config_;
  const CommandLine& command_;
  const run::RunLayout& layout_;
  train::Mailbox& mailbox_;
  train::StatusBoard& board_;
  Clock& clock_;

  train::TapBoard taps_;  // own synchronisation

  // Of the trainer's thread: read once, so that going back draws by what the run was started with.
  feed::SampleWeights weights_;
  const std::unique_ptr<GrowingData> growing_;  // null: data.train stays as it is

  std::atomic<bool> stop_asked_{false};  // written by the main thread; only ever turns true

  mutable std::mutex mutex_;
  std::unique_ptr<Parts> parts_;  // guarded by mutex_ while it is set or reset; its parts are used
                                  // by the trainer's thread
};

}  // namespace stoker::daemon_app
