// SandboxedDataset: a dataset decorator that reads the samples in a worker process
// (request_worker.h), so that a file that crashes or exploits its decoder does not harm this
// process.
//
// A process that ends while it reads is replaced, and its samples are read one by one. A sample
// that was read alone during kCrashesToQuarantine crashes, or needs more memory than permitted, is
// quarantined: it is logged and not read again by this object.
//
// What the process writes is copied to the caller's memory before anyone reads it, and only sizes
// known here are used. The values are not checked: they are those of an untrusted process
// (label_range_check.h), except that the length of a sequence is the indexed one.
//
// Threads:   as Dataset; one reads at a time. The kernel ends the worker process together with the
//            thread that started it: the one of open(), or of the read() after a crash.
// Blocking:  open() until the process has opened the dataset; reads as RequestWorker::request(),
//            with feed.worker_timeout_seconds for each sample of a request.
// Ownership: owns the process, and the dataset that it was given as a pointer.
// Errors:    open(): those of find_feed_program() and of opening the dataset in the process;
//            kPermission: sandbox_refused(). Reads: those of the dataset; kCorrupt: the sample is
//            quarantined (is_quarantined()), or more than kMaxQuarantined are; kTimedOut: the
//            process waits for the disk or is stopped; kInternal: it cannot be restarted;
//            kCancelled: Location::should_stop. After any of them the next read tries again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset_decorator.h"
#include "shared/feed/request_worker.h"

namespace stoker::feed {

class SandboxedDataset final : public data::DatasetDecorator, public data::SampleFiles {
 public:
  struct Location {
    std::string dataset;            // its name: data.NAME
    std::string index_dir;          // with the index of `data`
    std::string feed_program = {};  // empty: find_feed_program()
    // Called several times a second while the process is waited for; may throw.
    std::function<bool()> should_stop = {};
  };
  // `data`: the dataset of `config` at this location. A reference must outlive this object.
  static Result<std::unique_ptr<SandboxedDataset>> open(const config::Config& config,
                                                        Location location,
                                                        std::unique_ptr<data::Dataset> data);
  static Result<std::unique_ptr<SandboxedDataset>> open(const config::Config& config,
                                                        Location location,
                                                        const data::Dataset& data);
  ~SandboxedDataset() override;

  const data::DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override;
  data::BatchReadResult read_batch(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const override;

  // SampleFiles. Samples whose description fails are described as "unknown".
  void prefetch(uint64_t sample, data::files::PrefetchedBytes& bytes) const override {
    inner().info().maybe_files->prefetch(sample, bytes);
  }
  std::string describe_transforms(uint64_t sample,
                                  const data::RandomKey& random_key) const override;

  bool is_quarantined(uint64_t sample) const;
  pid_t process_id() const;       // -1: none is running
  ProcessUse worker_use() const;  // as RequestWorker::use()

 private:
  // How a request ended; see RequestWorker::Attempt.
  struct Attempt {
    RequestWorker::Attempt::End end = RequestWorker::Attempt::End::kAnswered;
    data::BatchReadResult result = {};  // kAnswered, kNotStarted
    std::string cause = {};             // kCrashed, kWaiting
  };

  SandboxedDataset(Location location, const config::FeedConfig& feed, const data::Dataset& data,
                   UniqueFd config);

  // All of them require mutex_.
  Attempt request(std::span<const data::SampleReadRequest> samples,
                  std::span<const std::span<std::byte>> rows) const;
  bool copy_rows(uint64_t length, std::span<const data::SampleReadRequest> samples, uint64_t good,
                 std::span<const std::span<std::byte>> rows) const;
  data::BatchReadResult read_group(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const;
  Status read_alone(const data::SampleReadRequest& sample,
                    std::span<const std::span<std::byte>> row) const;
  Status quarantine(uint64_t sample, std::string_view cause) const;

  // Constant after open().
  std::unique_ptr<data::Dataset> maybe_owned_;
  data::DatasetInfo info_;
  const std::string dataset_;  // its name
  const UniqueFd config_;      // make_config_file()
  const uint64_t samples_per_request_;
  const uint64_t memory_bytes_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable RequestWorker worker_;
  mutable std::set<uint64_t> quarantined_;
};

}  // namespace stoker::feed
