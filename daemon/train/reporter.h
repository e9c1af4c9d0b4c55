// Reporter: what the trainer measures, and what others see of it: a record for each interval of steps, the status, and
// what a rank of a group tells the others.
//
// Threads:   the trainer thread only.
// Blocking:  never, see MetricsSink and StatusBoard.
// Ownership: what the constructor takes by reference must outlive this object.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/cuda/device_queue.h"
#include "daemon/group/control_record.h"
#include "daemon/train/batch_source.h"
#include "daemon/train/coordination.h"
#include "daemon/train/core_wait.h"
#include "daemon/train/metrics_sink.h"
#include "daemon/train/nonfinite_guard.h"
#include "daemon/train/remaining_time.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "daemon/writer/checkpoint_writer.h"
#include "shared/base/clock.h"
#include "shared/base/resource_use.h"
#include "shared/config/config.h"
#include "shared/config/live_settings.h"
#include "shared/control/trainer_status.h"
#include "shared/metrics/metrics_record.h"

namespace stoker::train {

// What a record says of the steps since the last one, for the status.
void add_record(const metrics::TrainMetrics& record, control::TrainerStatus& status);
// The settings in effect, for the status.
void add_settings(const config::Config& config, const config::LiveSettings& live,
                  control::TrainerStatus& status);
// What the writer of the checkpoints has done, for the status.
void add_writer(const writer::WriterStats& saved, control::TrainerStatus::Checkpoint& status);

class Reporter {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  // `config`: in effect; it may change between steps. `data`: for the status.
  Reporter(const config::Config& config, TrainingState& state, BatchSource& source,
           MetricsSink& sink, TrainerChannels& channels, writer::CheckpointWriter& writer,
           Clock& clock, Coordination& ranks, std::string data);

  // Before the first step.
  void start();

  // ---- Times since the last record
  void begin_step();
  void end_step(double lr);           // with which its update was made
  void add_wait(nanoseconds waited);  // for a batch
  void add_stall(nanoseconds stall);  // by a snapshot
  void add_pause(nanoseconds began, nanoseconds ended);
  // For the other ranks, during a step.
  group::RankReport rank_report() const;

  // ---- Records
  bool is_record_due() const;  // after the current step
  // Ends the interval: all that does not need the values of the device.
  metrics::TrainMetrics begin_record(const cuda::DeviceUsage& usage);
  // Writes the record with these values, and publishes the status. Returns the length of train.jsonl.
  uint64_t finish_record(metrics::TrainMetrics record, const NonfiniteReport& found);

  // ---- Status
  void publish(control::TrainerState activity);
  void publish();                            // training, unless the writer is busy or degraded
  void publish_settings();                   // after a live setting has changed
  void publish_snapshot(nanoseconds stall);  // one was submitted

 private:
  // The times measured since the last record.
  struct Interval {
    nanoseconds started{0};
    nanoseconds waited{0};
    nanoseconds stalled{0};
    nanoseconds paused{0};
    uint64_t steps = 0;

    // Sets the time-based fields of `record`. `batch`: samples per step.
    void add_to(metrics::TrainMetrics& record, nanoseconds now, uint64_t batch) const;
  };

  void record_device_usage(const cuda::DeviceUsage& usage);
  // Warns once if the threads of the CPU wait for cores.
  void check_cores(nanoseconds now, double step_time_ms);
  // If it is time: into the status, and, of all ranks, into `record`.
  void measure_resources(nanoseconds now, metrics::TrainMetrics& record);

  const config::Config& config_;
  TrainingState& state_;
  BatchSource& source_;
  MetricsSink& sink_;
  TrainerChannels& channels_;
  writer::CheckpointWriter& writer_;
  Clock& clock_;
  Coordination& ranks_;
  control::TrainerStatus status_;
  Interval interval_;
  RemainingTime remaining_;
  nanoseconds step_start_{0}, waited_before_step_{0};
  double step_lr_ = 0;              // of the last step
  cuda::DeviceUsage device_usage_;  // up to the last record
  ResourceMeter meter_;
  CoreWait core_wait_;
  bool has_warned_of_cores_ = false;
  double measured_work_ms_ = 0;  // of the device, up to the last measurement
  nanoseconds measured_{0};
};

}  // namespace stoker::train
