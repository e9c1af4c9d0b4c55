// TrainingPreparation: from a run directory to parts that can train: which checkpoint the run goes on
// from, the data as it was then, model and optimizer, the checkpoint's state in them, and the outputs
// cut back to it.
//
// Nothing in the run directory is changed before it is sure that the run may go on as it is configured.
//
// Threads:  one, the trainer's; request_stop() any.
// Blocking: as looking at the data and making the model does.
// Owner:    everything that it is made with must outlive this object.
// Errors:   kCancelled: request_stop() was heard; otherwise whatever the parts report.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "daemon/app/command_line.h"
#include "daemon/app/resume_compatibility.h"
#include "daemon/app/training_parts.h"
#include "daemon/train/status_board.h"
#include "shared/feed/make_sample_plan.h"

namespace stoker::app {

class DatasetRefresher;

class TrainingPreparation {
 public:
  // `maybe_refresher`: null: data.train stays as it is.
  TrainingPreparation(const config::Config& config, const CommandLine& command,
                      const run::RunLayout& layout, DatasetRefresher* maybe_refresher,
                      train::StatusBoard& board, Clock& clock);

  void request_stop() { stop_requested_ = true; }

  // data.train where it stays as it is: before there are parts, and only once in a run's life.
  Result<std::unique_ptr<data::Dataset>> open_data() { return open_data(std::nullopt); }
  // `data`: null: data that grows, which is opened as it was where the run goes on. `resume`: the
  // checkpoint's path; empty: the newest valid one.
  Result<std::unique_ptr<TrainingParts>> prepare(std::unique_ptr<data::Dataset> data,
                                                 const std::string& resume);

 private:
  using StartPoint = std::optional<checkpoint::VerifiedCheckpoint>;

  Status check_stop() const;
  Result<std::unique_ptr<data::Dataset>> open_data(const StartPoint& start);
  Result<std::unique_ptr<TrainingParts>> make_parts(std::unique_ptr<data::Dataset> data,
                                                    const StartPoint& start, c10::Device device);
  Status describe(TrainingParts& parts, const StartPoint& start) const;
  Status begin(TrainingParts& parts);
  Status continue_training(TrainingParts& parts, const checkpoint::VerifiedCheckpoint& start);
  ResumeCompatibility changed_config() const;
  Status resolve_dataset_version(TrainingParts& parts, const checkpoint::Manifest* maybe_saved);

  const config::Config& config_;
  const CommandLine& command_;
  const run::RunLayout& layout_;
  DatasetRefresher* const maybe_refresher_;
  train::StatusBoard& board_;
  Clock& clock_;

  std::atomic<bool> stop_requested_{false};  // written by the main thread; only ever turns true

  // Of the trainer's thread: read once, so that going back draws by what the run was started with.
  feed::SampleWeights weights_;
};

}  // namespace stoker::app
