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
std::string_view state_name(TrainerState state);  // "starting", "training", …

struct TrainerStatus {
  TrainerState state = TrainerState::kStarting;
  uint64_t step = 0;
  uint64_t steps = 0;  // where training ends
  uint64_t epoch = 0;
  double loss = 0;  // of the last reported interval; NaN before the first
  double lr = 0;
  double samples_per_s = 0;
  double step_ms = 0;
  double device_ms = 0;  // of a step: the device's own work, last interval
  double eta_s = 0;
  uint64_t skipped_steps = 0;  // whose loss or gradient was not finite (on_nonfinite: skip)
  uint64_t rollbacks = 0;      // to the last checkpoint, for that reason (on_nonfinite: rollback)
  std::string device;          // "cpu", "cuda:0"
  struct Memory {
    uint64_t resident_bytes = 0;       // of stokerd, on the host
    uint64_t resident_peak_bytes = 0;  // the most of it so far
    // Of a device with memory of its own; otherwise 0.
    uint64_t device_bytes = 0;           // that tensors have
    uint64_t device_reserved_bytes = 0;  // that LibTorch has
    uint64_t device_peak_bytes = 0;      // the most that tensors have had
  } memory;
  struct Feed {
    double wait_ms = 0;  // the trainer's wait for data, per step, last interval
    uint64_t ready_slots = 0;
    uint64_t slots = 0;
    uint64_t bad_samples = 0;
    uint64_t reissued = 0;
    int readers = 0;
    uint64_t deaths = 0;   // of reader processes
    uint64_t hangs = 0;    // of those: killed because they hung
    uint64_t outside = 0;  // producers that are attached and not ours
    // How many reading threads were at it on average since the last report; together at most
    // `readers`.
    double reading = 0;       // getting bytes
    double decoding = 0;      // decoding, cropping and resizing pictures
    double transforming = 0;  // what is done to them at random
    double waiting = 0;       // for a free slot
  } feed;
  struct Checkpoint {
    uint64_t last_step = 0;  // last acknowledged; 0 = none yet
    bool in_flight = false;
    double stall_ms = 0;  // training stood still for the last snapshot
    uint64_t saved = 0;
    uint64_t failures = 0;
    uint64_t skipped = 0;  // asked for while one was in flight
    std::string last_error;
  } checkpoint;
  struct Evaluator {                    // read from the run directory, never from the evaluator
    std::string state = "not_started";  // not_started | running | exited
    uint64_t last_step = 0;
    double best = 0;  // of the first metric; NaN = none
    uint64_t best_step = 0;
  } evaluator;
  struct Control {             // filled in by the control server, which counts what it refuses
    uint64_t connections = 0;  // open now
    uint64_t accepted = 0;     // since the start
    uint64_t refused = 0;      // connections turned away
    uint64_t requests = 0;     // understood
    uint64_t rejected = 0;     // requests that were answered with an error
    uint64_t dropped = 0;      // connections closed because they went past a limit
  } control;
  std::string run_dir;
  int pid = 0;
  double uptime_s = 0;
};

// A JSON object on one line; NaN and the infinities, which JSON does not know, as null.
std::string to_json(const TrainerStatus& status);
// Fields that are missing keep their defaults and unknown ones are passed over, so that programs of
// two releases understand each other; only `state` and `step` must be there. null is NaN. kCorrupt:
// not JSON, or a field has the wrong type; names it.
Result<TrainerStatus> parse_trainer_status(std::string_view json);

}  // namespace stoker::control
