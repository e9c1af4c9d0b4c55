// TrainerStatus: the reply to `status`, an immutable snapshot that the trainer publishes and all
// other threads read.
//
// Threads: a value. The trainer publishes a new one through std::shared_ptr<const TrainerStatus>; a
//          published one never changes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/resource_use.h"
#include "shared/base/status.h"

namespace stoker::control {

enum class TrainerState { kStarting, kTraining, kPaused, kSaving, kStopping, kDegraded };
std::string_view to_string(TrainerState state);  // "starting", "training", …

struct TrainerStatus {
  TrainerState state = TrainerState::kStarting;
  uint64_t step = 0;
  uint64_t max_steps = 0;  // step at which training ends
  uint64_t epoch = 0;
  double loss =
      std::numeric_limits<double>::quiet_NaN();  // of the last interval; NaN before the first
  struct TrainingMetric {
    std::string name;  // "accuracy"
    double value = 0;
  };
  std::vector<TrainingMetric> training_metrics = {};  // of the task, over the same steps as `loss`
  double lr = 0;
  double samples_per_second = 0;
  double step_time_ms = 0;
  double device_time_ms = 0;  // per step, device time only, last interval
  double eta_seconds = 0;
  uint64_t skipped_steps = 0;  // with a nonfinite loss, gradient or buffer (skip_step)
  uint64_t rollbacks = 0;  // to the last checkpoint for the same reason (on_nonfinite: rollback)
  std::string device;      // "cpu", "cuda:0"
  std::string data;        // classes and input columns: describe(DatasetSchema)
  std::vector<std::pair<std::string, std::string>> live_settings;  // set during the run, as YAML
  // Before training: the lock of another process. Then: the data of a stream. Empty: nothing.
  std::string waiting_for;
  // Of stokerd, over the time of the last record that measured it; in a group of this rank. Resident memory: now.
  ResourceUse resources = {};
  struct Feed {
    double data_wait_ms = 0;  // time the trainer waits for data, per step, last interval
    uint64_t ready_batches = 0;
    uint64_t queue_capacity = 0;
    uint64_t sample_errors = 0;
    uint64_t requeued_batches = 0;
    int workers = 0;
    uint64_t worker_crashes = 0;      // number of worker processes that crashed
    uint64_t worker_timeouts = 0;     // of these: killed after a timeout
    uint64_t external_producers = 0;  // attached producers that stokerd did not start
    // Average number of workers in each state since the last report; the sum is at most `workers`.
    double workers_reading = 0;       // reading bytes
    double workers_decoding = 0;      // decoding, cropping and resizing images
    double workers_transforming = 0;  // applying random transforms
    double workers_waiting = 0;       // waiting for a free slot
  } feed;
  struct Checkpoint {
    uint64_t last_saved_step = 0;  // last committed; 0 = none yet
    bool is_saving = false;
    double stall_ms = 0;   // time training was blocked by the last snapshot
    double commit_ms = 0;  // from the last snapshot to its commit
    uint64_t saved_total = 0;
    uint64_t failed_total = 0;
    uint64_t skipped_total = 0;  // requested while one was in progress
    std::string last_error;
  } checkpoint;
  struct Evaluator {                    // read from the run directory, never from the evaluator
    std::string state = "not_started";  // run::EvaluatorState::Phase
    std::string reason;                 // of failed and crashed
    uint64_t last_evaluated_step = 0;
    double best_value =
        std::numeric_limits<double>::quiet_NaN();  // of the monitored metric; NaN: none
    uint64_t best_step = 0;
    std::string best_metric = {};     // DATASET/METRIC, that of best_value; empty: none
    std::string best_direction = {};  // "minimize", "maximize": which values are better
  } evaluator;
  struct Group {                     // of the ranks that share the steps
    struct Rank {                    // averages since the last report
      double compute_ms = 0;         // per step, until it waits for the others
      double data_wait_ms = 0;       // of this: waiting for data
      uint64_t optimizer_bytes = 0;  // size of its optimizer state
      // The first kProcessResources, of its process and its workers; 0: not known yet.
      std::array<double, kProcessResources> use = {};
    };
    int world_size = 1;
    uint64_t restart_count = 0;  // by the launcher
    double exchange_ms = 0;   // per step, last interval: this rank exchanges, and waits for others
    std::vector<Rank> ranks;  // empty if this process trains alone
  } group;
  struct Cluster {  // of parameter servers and workers, as its chief sees them
    struct Task {
      std::string job;  // ps | worker
      uint64_t index = 0;
      std::string address;             // host:port
      std::string state;               // serving | not_started | waiting | training | lost
      uint64_t starts = 0;             // of a worker
      uint64_t applied_gradients = 0;  // of a worker, likewise:
      uint64_t dropped_gradients = 0;
      uint64_t parameter_bytes = 0;  // of a parameter server
    };
    std::string replicas;            // sync | async; empty: no cluster
    uint64_t stale_gradients = 0;    // dropped, because their step was complete
    uint64_t backup_gradients = 0;   // dropped, because another worker was faster
    uint64_t largest_staleness = 0;  // of the applied gradients, in updates
    std::vector<Task> tasks;         // parameter servers, then workers
  } cluster;
  struct Control {                      // set by the control server
    uint64_t connections = 0;           // currently open
    uint64_t connections_accepted = 0;  // since the start
    uint64_t connections_rejected = 0;
    uint64_t requests_total = 0;       // valid requests
    uint64_t requests_failed = 0;      // requests answered with an error
    uint64_t connections_dropped = 0;  // closed because they exceeded a limit
  } control;
  std::string run_dir;  // RunIdentity, set by the control server
  std::string run_dir_id;
  int pid = 0;
  double uptime_seconds = 0;
};

// Whether the loss, the rates and the times are those of an interval: before the first there are none.
inline bool has_interval(const TrainerStatus& status) { return status.step_time_ms > 0; }

// A JSON object on one line. NaN and the infinities, which JSON cannot represent, are null.
std::string to_json(const TrainerStatus& status);
// Missing fields keep their defaults and unknown ones are ignored, so that programs of different
// releases are compatible; only `state` and `step` are required. null is read as NaN. kCorrupt: not
// JSON, or a field has the wrong type; names the field.
Result<TrainerStatus> parse_trainer_status(std::string_view json);

}  // namespace stoker::control
