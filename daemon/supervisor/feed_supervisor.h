// FeedSupervisor: the producers of one run: reader processes (or threads of this process), kept
// alive, and their bad samples taken note of.
//
// A reader process that dies is reaped first; then the ring hands its tickets to the others, so the
// trainer gets the same batches with the same bytes; then another process is started in its place.
// A sample that kills one process after another goes into quarantine, and its stand-in is read. A
// process that hangs is killed, and then treated as one that died.
//
// Threads:  every method may be called from any thread. One thread under the coordinator watches
//           the readers; with isolation: thread the reading threads are under it, too.
// Blocking: start() as starting processes does; stop() at most about a second, and some more for
//           each process that the kernel cannot end.
// Owner:    ring, dataset, plan, coordinator and clock must outlive this object; join the
//           coordinator before destroying it. The destructor leaves no process behind. start()
//           belongs to a thread that lives as long as training does: the kernel ends the processes
//           with the thread that started them.
// Errors:   start(): stoker-feed is missing or cannot be started, kNoSpace. Later trouble is a
//           request_stop(): kInternal (reader processes die again and again), kCorrupt (bad samples
//           beyond what the configuration allows), kPermission (the first reader process that may
//           not install its seccomp filter).
// Crash:    when this process dies, however it dies, the kernel kills the readers and frees the
//           ring.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/supervisor/crash_policy.h"
#include "daemon/supervisor/external_producers.h"
#include "daemon/supervisor/progress_monitor.h"
#include "daemon/supervisor/sample_error_log.h"
#include "daemon/supervisor/worker_autotuner.h"
#include "daemon/supervisor/worker_process.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/worker_pool.h"
#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

struct FeedOptions {
  config::FeedConfig feed;
  std::string config_path;            // the run's resolved configuration: run/config.yaml
  std::string index_dir;              // where the data set's index was left
  std::string sample_error_path;      // run/sample_errors.jsonl; empty: no list
  SampleErrorHistory sample_errors;   // of this ring's first ticket
  std::string feed_program;           // empty: find_feed_program()
  std::vector<uint64_t> quarantined;  // samples not to be read, as the checkpoint names them
};

class FeedSupervisor {
 public:
  FeedSupervisor(FeedOptions options, ring::ShmRing& ring, const data::Dataset& dataset,
                 const data::order::SamplePlan& plan, Coordinator& coordinator,
                 Clock& clock = system_clock());
  ~FeedSupervisor();
  FeedSupervisor(const FeedSupervisor&) = delete;
  FeedSupervisor& operator=(const FeedSupervisor&) = delete;

  Status start();
  // The ring for a process that is to fill it beside the readers or in their stead. kPermission: not
  // with this feed.producers. kClosed: the feed ends. Otherwise as ExternalProducers.
  Result<Attachment> attach(ExternalProcess process);
  // Closes the ring, waits for the readers, kills those that do not come, and takes note of their
  // last reports.
  void stop();

  int live_workers() const;  // reading threads now, without those that rest
  WorkerActivity::Busy busy() const;
  uint64_t sample_errors() const;  // of the whole run, as far as the readers are
  // Those that a checkpoint counts which was made before the step of `ticket`; see SampleErrorLog.
  uint64_t sample_errors_before(uint64_t ticket);
  // Waits until all that was counted so far is listed on the disk.
  void flush_sample_errors() { sample_error_file_.flush(); }
  uint64_t crashes() const;                   // of reader processes
  uint64_t timeouts() const;                  // of those: killed because they hung
  std::vector<uint64_t> quarantined() const;  // samples, for the checkpoint
  size_t external_producers() const;          // attached now
  std::vector<int> process_ids() const;       // of the live readers

 private:
  struct Worker {
    uint32_t number = 0;  // row of the quarantine table
    int threads = 1;
    std::optional<WorkerProcess> maybe_process;
    ring::ProducerId producer;
    std::chrono::nanoseconds started{0};
    std::chrono::nanoseconds start_again{0};  // when there is no process
    std::chrono::nanoseconds delay{0};        // before the next start
    bool done = false;                        // it ended because there is no more to read
    ProgressMonitor monitor;
    std::optional<std::chrono::nanoseconds> maybe_killed;  // when: it hung
    bool outlives_kill = false;                            // and that is said
  };

  Status start_threads();
  Status start_processes();
  Status spawn(Worker& worker);
  Status supervise(std::stop_token stop);
  Status make_table(uint32_t workers, uint32_t threads);
  void wait_for_exits(std::chrono::milliseconds timeout) const;

  // Who died, who hangs, who is to be started again.
  Status check_workers();
  // With mutex_ held.
  void check_worker(Worker& worker);
  void watch_progress(Worker& worker);
  void kill_timed_out(Worker& worker);
  void handle_crash(Worker& worker, const WorkerProcess::End& end);
  std::string crash_cause(const Worker& worker, const WorkerProcess::End& end) const;
  void end_without_sandbox(Worker& worker);
  void schedule_restart(Worker& worker);
  Status count_sample_errors();  // kCorrupt: the run must end
  bool any_process() const;
  void tune_worker_count(const ring::RingCounters& counters);

  // Constant after construction.
  FeedOptions options_;
  ring::ShmRing& ring_;
  const data::Dataset& dataset_;
  const data::order::SamplePlan& plan_;
  Coordinator& coordinator_;
  Clock& clock_;

  // Own synchronisation.
  SampleErrorFile sample_error_file_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  SampleErrorLog sample_errors_;
  std::vector<Worker> workers_;
  std::optional<feed::QuarantineTable> table_;
  std::optional<Quarantine> quarantine_;
  std::optional<feed::CrashTrackingDataset> crash_tracking_;  // isolation: thread
  std::optional<feed::WorkerPool> pool_;                      // isolation: thread
  bool stopping_ = false;
  RestartLimiter budget_;
  std::optional<WorkerAutotuner> tuner_;  // feed.num_workers: auto
  WorkerActivity activity_;
  ExternalProducers external_;
  uint64_t timeouts_ = 0;
};

}  // namespace stoker::supervisor
