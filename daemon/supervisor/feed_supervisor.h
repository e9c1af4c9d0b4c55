// FeedSupervisor: manages the producers of one run. Starts worker processes (or threads of this
// process), restarts them and collects their sample errors.
//
// When a worker process crashes, it is reaped first. Then the ring requeues its tickets for the
// other workers, so the trainer gets the same batches with the same bytes. Then a new process is
// started. A sample that crashes several processes is quarantined, and its replacement sample is
// read. A process that hangs is killed and then handled like a crash.
//
// Threads:   every method may be called from any thread. One thread under the coordinator
//            supervises the workers. With feed.num_processes: 0 the worker threads also run under
//            it.
// Blocking:  start() while processes start; stop() for about a second, and longer for each process
//            that the kernel cannot end.
// Ownership: ring, dataset, plan, coordinator and clock must outlive this object. Join the
//            coordinator before destroying it. The destructor leaves no process running. Call
//            start() from a thread that lives as long as training, because the kernel ends the
//            processes together with the thread that started them.
// Errors:    start(): stoker-feed is missing or cannot be started, kNoSpace. Later errors call
//            request_stop(): those of a stream, as the worker process reports them; those of RestartLimiter, kCorrupt (a process
//            overwrote the ring; more sample errors than the configuration allows), kPermission (a worker process is not
//            permitted to install its seccomp filter).
// Crash:     if this process ends for any reason, the kernel kills the workers and frees the ring.
#pragma once

#include <sys/types.h>

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
#include "daemon/supervisor/stream_recovery.h"
#include "daemon/supervisor/worker_autotuner.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/resource_use.h"
#include "shared/base/status.h"
#include "shared/config/feed_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/stream_state.h"
#include "shared/feed/worker_arguments.h"
#include "shared/feed/worker_pool.h"
#include "shared/feed/worker_process.h"
#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

struct FeedOptions {
  config::FeedConfig feed;
  std::string config_path;             // the run's resolved configuration: RUN/config.yaml
  std::string index_dir;               // directory of the dataset index
  std::string sample_error_path;       // RUN/sample_errors.jsonl; empty: no list
  SampleErrorHistory sample_errors;    // up to the first ticket of this ring
  std::string feed_program;            // empty: feed::find_feed_program()
  std::vector<uint64_t> quarantined;   // samples that are not read, from the checkpoint
  std::optional<StreamSupply> stream;  // of the dataset
  ring::TicketShare share = {};        // that of the ring
  // Between two observations of the worker processes.
  std::chrono::milliseconds max_wait{100};
};

class FeedSupervisor {
 public:
  // `maybe_dataset`: the samples with an index; null: all are those of a stream.
  FeedSupervisor(FeedOptions options, ring::ShmRing& ring, const data::Dataset* maybe_dataset,
                 const data::order::SamplePlan& plan, Coordinator& coordinator,
                 Clock& clock = system_clock());
  ~FeedSupervisor();
  FeedSupervisor(const FeedSupervisor&) = delete;
  FeedSupervisor& operator=(const FeedSupervisor&) = delete;

  Status start();
  // The ring for an external producer. kPermission: not with this feed.producers. kClosed: the feed
  // is stopping. Otherwise as ExternalProducers.
  Result<Attachment> attach(ExternalProcess process);
  // Closes the ring, waits for the workers, kills those that do not exit, and processes their last
  // reports.
  void stop();

  int live_workers() const;  // running worker threads without idle ones
  WorkerActivity::Busy busy() const;
  uint64_t sample_errors() const;  // over the whole run, including read-ahead batches
  // Those counted by a checkpoint from before the step of `ticket`; see SampleErrorLog.
  uint64_t sample_errors_before(uint64_t ticket);
  // Waits until all sample errors counted so far are listed on disk.
  void flush_sample_errors() { sample_error_file_.flush(); }
  uint64_t crashes() const;                   // of worker processes
  uint64_t timeouts() const;                  // of these: killed after a timeout
  std::vector<uint64_t> quarantined() const;  // samples, for the checkpoint
  size_t external_producers() const;          // currently attached
  // Of a stream: the state after the batch of a ticket that is in use, or was consumed last.
  Result<feed::StreamState> stream_state(uint64_t ticket) const;
  // Of a stream that has ended, and whose batches were consumed.
  Result<feed::StreamState> end_state() const;
  // Of an input that cannot be read again: what was read of it and the state needs, as far as it is
  // held; nullopt: nothing is. After stop(), nothing more is read.
  std::optional<feed::StreamHistory> history_of(const feed::StreamState& state) const;
  // The source for whose producer the stream waits; empty: it does not wait.
  std::string waits_for() const;
  // The threads of the queues of a stream, in its worker process; empty: it does not run.
  ThreadList stream_threads() const;
  std::vector<int> process_ids() const;  // of the running workers
  // Of the worker processes, also of those that have ended; nothing is known with feed.num_processes: 0.
  ProcessUse worker_use() const;

 private:
  struct Worker {
    uint32_t number = 0;  // index in the quarantine table
    int threads = 1;
    std::optional<feed::WorkerProcess> maybe_process;
    ring::ProducerId producer;
    std::chrono::nanoseconds started{0};
    std::chrono::nanoseconds next_start_time{0};  // start time of the next process
    std::chrono::nanoseconds delay{0};            // before the next start
    bool done = false;                            // ended because there is no more data
    ProgressMonitor monitor;
    std::optional<std::chrono::nanoseconds> maybe_killed;  // when it timed out
    bool is_unkillable_logged = false;                     // and this was logged
  };

  Status start_threads();
  Status start_processes();
  Status spawn(Worker& worker);
  feed::WorkerArguments arguments_of(const Worker& worker) const;
  Status start_stream();
  Status supervise(std::stop_token stop);
  Status make_table(uint32_t workers, uint32_t threads);
  void wait_for_exits(std::chrono::milliseconds timeout) const;

  // Handles exits, timeouts and due restarts.
  Status check_workers();
  // Require mutex_.
  void check_worker(Worker& worker);
  void watch_progress(Worker& worker);
  void kill_timed_out(Worker& worker);
  void handle_crash(Worker& worker, const feed::WorkerProcess::End& end);
  Status take_failure(const Worker& worker, const feed::WorkerProcess::End& end) const;
  std::string crash_cause(const Worker& worker, const feed::WorkerProcess::End& end,
                          const Status& failure) const;
  void end_without_sandbox(Worker& worker);
  void schedule_restart(Worker& worker);
  Status count_sample_errors();  // kCorrupt: the run must end
  bool any_process() const;
  void end_process(Worker& worker);  // which has exited, or is killed
  void tune_worker_count(const ring::RingCounters& counters);

  // Constant after construction.
  FeedOptions options_;
  ring::ShmRing& ring_;
  const data::Dataset* const maybe_dataset_;
  const data::order::SamplePlan& plan_;
  Coordinator& coordinator_;
  Clock& clock_;

  // Own synchronization.
  SampleErrorFile sample_error_file_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  SampleErrorLog sample_errors_;
  std::vector<Worker> workers_;
  std::optional<feed::QuarantineTable> table_;
  std::optional<StreamRecovery> stream_;
  std::optional<Quarantine> quarantine_;
  std::optional<feed::CrashTrackingDataset> crash_tracking_;  // feed.num_processes: 0
  std::optional<feed::WorkerPool> pool_;                      // feed.num_processes: 0
  bool stopping_ = false;
  RestartLimiter budget_;
  std::optional<WorkerAutotuner> tuner_;  // feed.num_workers: auto
  WorkerActivity activity_;
  ExternalProducers external_;
  uint64_t timeouts_ = 0;
  uint64_t lost_reports_ = 0;  // counted by the ring so far
  ProcessUse ended_use_;       // of the worker processes that have ended
};

}  // namespace stoker::supervisor
