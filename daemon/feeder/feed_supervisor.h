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

#include "daemon/feeder/bad_sample_file.h"
#include "daemon/feeder/bad_sample_log.h"
#include "daemon/feeder/feed_activity.h"
#include "daemon/feeder/guarded_dataset.h"
#include "daemon/feeder/hang_watch.h"
#include "daemon/feeder/outside_producers.h"
#include "daemon/feeder/quarantine.h"
#include "daemon/feeder/quarantine_table.h"
#include "daemon/feeder/reader_process.h"
#include "daemon/feeder/reader_tuner.h"
#include "daemon/feeder/restart_budget.h"
#include "shared/base/clock.h"
#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/config/feed_config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/reader_pool.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feeder {

struct FeedSettings {
  config::FeedConfig feed;
  std::string config_path;            // the run's resolved configuration: run/config.yaml
  std::string index_dir;              // where the data set's index was left
  std::string bad_sample_path;        // run/sample_errors.jsonl; empty: no list
  BadSamplesBefore bad_samples;       // of this ring's first ticket
  std::string feed_program;           // empty: find_feed_program()
  std::vector<uint64_t> quarantined;  // samples not to be read, as the checkpoint names them
};

class FeedSupervisor {
 public:
  FeedSupervisor(FeedSettings settings, ring::ShmRing& ring, const dataset::Dataset& dataset,
                 const dataset::SamplePlan& plan, Coordinator& coordinator,
                 Clock& clock = system_clock());
  ~FeedSupervisor();
  FeedSupervisor(const FeedSupervisor&) = delete;
  FeedSupervisor& operator=(const FeedSupervisor&) = delete;

  Status start();
  // The ring for a process that is to fill it beside the readers or in their stead. kPermission: not
  // with this feed.producers. kClosed: the feed ends. Otherwise as OutsideProducers.
  Result<Attachment> attach(OutsideProcess process);
  // Closes the ring, waits for the readers, kills those that do not come, and takes note of their
  // last reports.
  void stop();

  int live_readers() const;  // reading threads now, without those that rest
  FeedActivity::Busy busy() const;
  uint64_t bad_samples() const;  // of the whole run, as far as the readers are
  // Those that a checkpoint counts which was made before the step of `ticket`; see BadSampleLog.
  uint64_t bad_samples_before(uint64_t ticket);
  // Waits until all that was counted so far is listed on the disk.
  void flush_bad_samples() { bad_sample_file_.flush(); }
  uint64_t deaths() const;                    // of reader processes
  uint64_t hangs() const;                     // of those: killed because they hung
  std::vector<uint64_t> quarantined() const;  // samples, for the checkpoint
  size_t outside_producers() const;           // attached now
  std::vector<int> process_ids() const;       // of the live readers

 private:
  struct Reader {
    uint32_t number = 0;  // row of the quarantine table
    int threads = 1;
    std::optional<ReaderProcess> maybe_process;
    ring::ProducerId producer;
    std::chrono::nanoseconds started{0};
    std::chrono::nanoseconds start_again{0};  // when there is no process
    std::chrono::nanoseconds delay{0};        // before the next start
    bool done = false;                        // it ended because there is no more to read
    HangWatch watch;
    std::optional<std::chrono::nanoseconds> maybe_killed;  // when: it hung
    bool outlives_kill = false;                            // and that is said
  };

  Status start_threads();
  Status start_processes();
  Status spawn(Reader& reader);
  Status supervise(std::stop_token stop);
  Status make_table(uint32_t readers, uint32_t threads);
  void wait_for_deaths(std::chrono::milliseconds timeout) const;

  // In feed_watch.cc.
  Status look_around();
  // With mutex_ held.
  void look_after(Reader& reader);
  void watch_progress(Reader& reader);
  void kill_hung(Reader& reader);
  void note_death(Reader& reader, const ReaderProcess::End& end);
  std::string cause_of(const Reader& reader, const ReaderProcess::End& end) const;
  void end_without_sandbox(Reader& reader);
  void plan_restart(Reader& reader);
  Status count_bad_samples();  // kCorrupt: the run must end
  bool any_process() const;
  void tune_readers(const ring::RingCounters& counters);

  // Constant after construction.
  FeedSettings settings_;
  ring::ShmRing& ring_;
  const dataset::Dataset& dataset_;
  const dataset::SamplePlan& plan_;
  Coordinator& coordinator_;
  Clock& clock_;

  // Own synchronisation.
  BadSampleFile bad_sample_file_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  BadSampleLog bad_samples_;
  std::vector<Reader> readers_;
  std::optional<QuarantineTable> table_;
  std::optional<Quarantine> quarantine_;
  std::optional<GuardedDataset> guarded_;  // isolation: thread
  std::optional<feed::ReaderPool> pool_;   // isolation: thread
  bool stopping_ = false;
  RestartBudget budget_;
  std::optional<ReaderTuner> tuner_;  // feed.num_workers: auto
  FeedActivity activity_;
  OutsideProducers outside_;
  uint64_t hangs_ = 0;
};

}  // namespace stoker::feeder
