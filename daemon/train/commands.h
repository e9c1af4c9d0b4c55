// Commands: executes the requests of the mailbox. What concerns all ranks of a group is deferred until they agree on it
// (Coordination); what needs a checkpoint, or another segment of the run, is left to the trainer, which asks for it.
//
// Threads:   the trainer thread only.
// Blocking:  never.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    each is the reply to its request.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/train/checkpointing.h"
#include "daemon/train/coordination.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/reporter.h"
#include "daemon/train/setting_update.h"
#include "daemon/train/step_instrumentation.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/load_config.h"
#include "shared/control/command.h"

namespace stoker::train {

// Called after a live setting has changed, with the configuration in effect: applies what the trainer does not use, and
// records the change. Can be empty.
using OnSettingChange = std::function<void(uint64_t step, const config::Config& config,
                                           const config::SettingChange& change)>;

class Commands {
 public:
  // What the commands change or ask.
  struct Targets {
    const config::Config& configured;
    config::Config& config;  // in effect
    TrainingState& state;
    TrainerChannels& channels;
    writer::CheckpointWriter& writer;
    Coordination& ranks;
    Checkpointing& checkpointing;
    StepInstrumentation& instrumentation;
    Reporter& reporter;
  };
  Commands(Targets targets, bool has_device_memory, OnSettingChange on_setting_change);

  void execute_pending();  // those in the mailbox
  void execute(const std::vector<Request>& agreed);
  // Of scheduler reduce_on_plateau, which all ranks of a group do after the same step.
  Status reduce_learning_rate();

  // ---- What the trainer has to do
  bool stops() const { return stop_requested_; }
  bool is_preempted() const { return is_preempted_; }  // by the launcher
  // Save, and continue with the next segment, for this live setting; empty: no.
  const std::string& segment_key() const { return segment_key_; }
  // Up to which the ring has batches; the configuration in effect can have another one.
  uint64_t last_step() const { return last_step_; }
  bool must_release() const { return !channels_.release_requests.empty(); }
  void reject_release(const Status& why);

  // ---- The end
  // Another trainer follows, which gets what was deferred.
  void put_back();
  // Replies to all that have no reply yet, and to those that come later. `failure`: why; ok: regularly.
  void end(const Status& failure);

 private:
  void execute(const Request& request);
  // One for each kind of control::Command.
  void execute(const control::Pause& pause, const Request& request);
  void execute(const control::Resume& resume, const Request& request);
  void execute(const control::SaveCheckpoint& save, const Request& request);
  void execute(const control::Stop& stop, const Request& request);
  void execute(const control::SetSetting& set, const Request& request);
  void execute(const control::UnsetSetting& unset, const Request& request);
  void execute(const control::Profile& profile, const Request& request);
  void execute(const control::OpenInspection& open, const Request& request);
  Status check(const control::Command& command) const;
  void change_setting(const Request& request);
  void apply(SettingUpdate& update);

  const config::Config& configured_;
  config::Config& config_;
  TrainingState& state_;
  TrainerChannels& channels_;
  writer::CheckpointWriter& writer_;
  Coordination& ranks_;
  Checkpointing& checkpointing_;
  StepInstrumentation& instrumentation_;
  Reporter& reporter_;
  const bool has_device_memory_;
  const OnSettingChange on_setting_change_;
  const uint64_t last_step_;
  std::string segment_key_;
  bool stop_requested_ = false;
  bool is_preempted_ = false;
};

}  // namespace stoker::train
