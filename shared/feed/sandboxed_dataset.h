// SandboxedDataset: a dataset decorator that reads the samples in a worker process (stoker-feed)
// with its sandbox and limits (feed.sandbox, feed.worker_memory_limit_mib,
// feed.worker_timeout_seconds), so that a file that crashes or exploits its decoder does not harm
// this process.
//
// A process that ends while it reads is replaced, and its samples are read one by one. A sample
// that was read alone during kCrashesToQuarantine crashes, or needs more memory than permitted, is
// quarantined: it is logged and not read again by this object.
//
// The process waits while this one computes and vice versa, so that both together use one core.
// What it writes is copied to the caller's memory before anyone reads it, and only sizes known
// here are used. The values are not checked: they are those of an untrusted process
// (label_range_check.h), except that the length of a sequence is the indexed one.
//
// Threads:   as Dataset; one reads at a time. The kernel ends the worker process together with the
//            thread that started it: the one of open(), or of the read() after a crash.
// Blocking:  open() until the process has opened the dataset; reads until the process answers or is
//            killed, after feed.worker_timeout_seconds for each sample of a request. A read that
//            does not end is not limited without this setting, nor while a busy machine gives the
//            process no time (if its state in /proc is hidden: no CPU time at all for this long).
// Ownership: owns the dataset and the process.
// Errors:    open(): those of find_feed_program() and of opening the dataset in the process;
//            kPermission: sandbox_refused(). Reads: those of the dataset; kCorrupt: the sample is
//            quarantined (is_quarantined()), or more than kMaxQuarantined are; kTimedOut: the
//            process waits for the disk or is stopped; kInternal: it cannot be restarted. After any
//            of them the next read tries again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset_decorator.h"
#include "shared/feed/read_protocol.h"
#include "shared/feed/worker_process.h"
#include "shared/ring/segment.h"

namespace stoker::feed {

class SandboxedDataset final : public data::DatasetDecorator {
 public:
  struct Location {
    std::string dataset;            // its name: data.NAME
    std::string index_dir;          // with the index of `data`
    std::string feed_program = {};  // empty: find_feed_program()
  };
  // `data`: the dataset of `config` at this location.
  static Result<std::unique_ptr<SandboxedDataset>> open(const config::Config& config,
                                                        Location location,
                                                        std::unique_ptr<data::Dataset> data);
  ~SandboxedDataset() override;

  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override;
  data::BatchReadResult read_batch(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const override;

  bool is_quarantined(uint64_t sample) const;
  pid_t process_id() const;  // -1: none is running

 private:
  // How a request ended.
  struct Attempt {
    enum class End {
      kAnswered,
      kCrashed,     // the process has ended, possibly because of a sample
      kWaiting,     // it was killed while it waited, which no sample causes
      kNotStarted,  // there is no process; `result.status` says why
    };
    End end = End::kAnswered;
    data::BatchReadResult result = {};
    std::string cause = {};  // kCrashed, kWaiting
  };
  struct Worker {
    WorkerProcess process;
    UniqueFd socket;
    // Not reused: a process that the kernel cannot end may still be writing to it.
    ring::Segment memory;
    uint64_t serial = kReadySerial;  // of the last request
  };

  SandboxedDataset(Location location, const config::FeedConfig& feed,
                   std::unique_ptr<data::Dataset> data, UniqueFd config);

  // All of them require mutex_.
  Status start() const;
  Status spawn() const;
  Attempt request(std::span<const data::SampleReadRequest> samples,
                  std::span<const std::span<std::byte>> rows) const;
  // `count`: samples of the request; 0: until the dataset is open.
  Attempt wait_for_reply(uint64_t count) const;
  Attempt receive(uint64_t count) const;
  Attempt end_crashed(std::string cause) const;
  bool copy_rows(uint64_t length, std::span<const data::SampleReadRequest> samples, uint64_t good,
                 std::span<const std::span<std::byte>> rows) const;
  data::BatchReadResult read_group(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const;
  Status read_alone(const data::SampleReadRequest& sample,
                    std::span<const std::span<std::byte>> row) const;
  Status quarantine(uint64_t sample, std::string_view cause) const;

  // Constant after construction.
  const std::unique_ptr<data::Dataset> data_;
  const Location location_;
  const config::FeedConfig feed_;
  const UniqueFd config_;  // sealed memfd
  const uint64_t samples_per_request_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::optional<Worker> worker_;  // none before start() and after a crash
  mutable std::set<uint64_t> quarantined_;
};

}  // namespace stoker::feed
