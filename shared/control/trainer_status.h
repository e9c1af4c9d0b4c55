// TrainerStatus: what `status` answers; one immutable snapshot that the trainer publishes and
// everybody else reads.
//
// Threads: a value; the trainer publishes a new one through std::shared_ptr<const TrainerStatus>,
//          nobody changes an old.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::control {

enum class TrainerState { kStarting, kTraining, kPaused, kSaving, kStopping, kDegraded };
std::string_view to_string(TrainerState state);  // "starting", "training", …

struct TrainerStatus {
  TrainerState state = TrainerState::kStarting;
  uint64_t step = 0;
  uint64_t max_steps = 0;  // where training ends
  uint64_t epoch = 0;
  double loss = 0;  // of the last reported interval; NaN before the first
  double lr = 0;
  double samples_per_second = 0;
  double step_time_ms = 0;
  double device_time_ms = 0;  // of a step: the device's own work, last interval
  double eta_seconds = 0;
  uint64_t skipped_steps = 0;  // whose loss or gradient was not finite (on_nonfinite: skip)
  uint64_t rollbacks = 0;      // to the last checkpoint, for that reason (on_nonfinite: rollback)
  std::string device;          // "cpu", "cuda:0"
  struct Memory {
    uint64_t rss_bytes = 0;       // of stokerd, on the host
    uint64_t peak_rss_bytes = 0;  // the most of it so far
    // Of a device with memory of its own; otherwise 0.
    uint64_t device_allocated_bytes = 0;       // that tensors have
    uint64_t device_reserved_bytes = 0;        // that LibTorch has
    uint64_t device_peak_allocated_bytes = 0;  // the most that tensors have had
  } memory;
  struct Feed {
    double data_wait_ms = 0;  // the trainer's wait for data, per step, last interval
    uint64_t ready_batches = 0;
    uint64_t queue_capacity = 0;
    uint64_t sample_errors = 0;
    uint64_t requeued_batches = 0;
    int workers = 0;
    uint64_t worker_crashes = 0;      // of reader processes
    uint64_t worker_timeouts = 0;     // of those: killed because they hung
    uint64_t external_producers = 0;  // producers that are attached and not ours
    // How many reading threads were at it on average since the last report; together at most
    // `readers`.
    double workers_reading = 0;       // getting bytes
    double workers_decoding = 0;      // decoding, cropping and resizing pictures
    double workers_transforming = 0;  // what is done to them at random
    double workers_waiting = 0;       // for a free slot
  } feed;
  struct Checkpoint {
    uint64_t last_saved_step = 0;  // last acknowledged; 0 = none yet
    bool is_saving = false;
    double stall_ms = 0;  // training stood still for the last snapshot
    uint64_t saved_total = 0;
    uint64_t failed_total = 0;
    uint64_t skipped_total = 0;  // asked for while one was in flight
    std::string last_error;
  } checkpoint;
  struct Evaluator {                    // read from the run directory, never from the evaluator
    std::string state = "not_started";  // not_started | running | exited
    uint64_t last_evaluated_step = 0;
    double best_value = 0;  // of the first metric; NaN = none
    uint64_t best_step = 0;
  } evaluator;
  struct Control {             // filled in by the control server, which counts what it refuses
    uint64_t connections = 0;  // open now
    uint64_t connections_accepted = 0;  // since the start
    uint64_t connections_rejected = 0;  // connections turned away
    uint64_t requests_total = 0;        // understood
    uint64_t requests_failed = 0;       // requests that were answered with an error
    uint64_t connections_dropped = 0;   // connections closed because they went past a limit
  } control;
  std::string run_dir;
  int pid = 0;
  double uptime_seconds = 0;
};

// A JSON object on one line; NaN and the infinities, which JSON does not know, as null.
std::string to_json(const TrainerStatus& status);
// Fields that are missing keep their defaults and unknown ones are passed over, so that programs of
// two releases understand each other; only `state` and `step` must be there. null is NaN. kCorrupt:
// not JSON, or a field has the wrong type; names it.
Result<TrainerStatus> parse_trainer_status(std::string_view json);

}  // namespace stoker::control
