// QuarantineTable: shared state of stokerd and its worker processes about samples that crash their
// worker and about errors that end it, in one sealed memfd next to the ring.
//
// It has six parts. Marks: the samples that each worker thread is reading, so that stokerd knows
// what a crashed process was reading. Suspects: samples that were being read when a process
// crashed; each is read alone in its process, so that the next crash identifies one sample.
// Quarantine: samples that are no longer read. Denied system calls: the call outside the allowlist
// of the filter that terminated a process. Failures: the errors that processes exit with. Use: what each
// process uses of the machine.
//
// Threads:   every method may be called from any thread and process. Lock-free.
// Blocking:  never.
// Ownership: the kernel frees the memfd after its last user.
// Errors:    create(): as ring::Segment. attach(): kMismatch (not a table, or created by another
//            build).
// Format:    version 5, 64-bit words. An entry is the sample index + 1, 0 = none. Only stokerd and
//            its own stoker-feed processes share it.
// Crash:     the marks of a crashed process intentionally remain; drain_marks() clears them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/dataset_decorator.h"
#include "shared/feed/shared_use.h"
#include "shared/ring/segment.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxSuspects = 256;
inline constexpr uint64_t kMaxQuarantined = 256;
// Crashes during which a sample was the only one being read, until it is quarantined.
inline constexpr uint64_t kCrashesToQuarantine = 3;

class QuarantineTable {
 public:
  // `workers` processes with up to `threads` worker threads each.
  static Result<QuarantineTable> create(uint32_t workers, uint32_t threads);
  static Result<QuarantineTable> attach(UniqueFd fd);

  int fd() const { return segment_.fd(); }
  uint32_t workers() const { return workers_; }

  // Marks samples as being read by process `worker` for the lifetime of the object: one sample, or
  // up to kMaxSamplesPerMark samples that are read together.
  static constexpr uint64_t kMaxSamplesPerMark = 32;
  class Mark {
   public:
    Mark(const QuarantineTable& table, uint32_t worker, uint64_t sample);
    ~Mark();
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    void add(uint64_t sample);

   private:
    uint64_t* maybe_words_ = nullptr;  // null: more threads than the table has marks
    uint64_t samples_ = 1;
  };
  // The samples that the crashed process `worker` was reading.
  std::vector<uint64_t> drain_marks(uint32_t worker) const;

  // Where process `worker` stores the number of a denied system call, plus 1.
  uint64_t& denied_syscall_slot(uint32_t worker) const;
  std::optional<uint64_t> take_denied_syscall(uint32_t worker) const;

  // Why process `worker` exits. Called by its last thread.
  void set_failure(uint32_t worker, const Status& failure) const;
  // Of a process that has exited; ok: it reported none. The text is printable.
  Status take_failure(uint32_t worker) const;

  // What process `worker` uses, which it stores itself.
  SharedUse& use(uint32_t worker) const;

  // True if there is any suspect or any sample in quarantine.
  bool has_entries() const { return suspects_.any() || quarantine_.any(); }
  bool suspected(uint64_t sample) const { return suspects_.contains(sample); }
  bool suspect(uint64_t sample) const { return suspects_.add(sample); }  // false: table full
  void clear_suspect(uint64_t sample) const { suspects_.remove(sample); }

  bool quarantined(uint64_t sample) const { return quarantine_.contains(sample); }
  bool quarantine(uint64_t sample) const { return quarantine_.add(sample); }  // false: table full

 private:
  // A small set of samples in shared memory. The entries are authoritative; `count` only avoids the
  // search when the set is empty.
  struct SampleSet {
    uint64_t* count = nullptr;
    std::span<uint64_t> entries;

    bool any() const { return std::atomic_ref(*count).load() != 0; }
    bool contains(uint64_t sample) const;
    bool add(uint64_t sample) const;
    void remove(uint64_t sample) const;
  };

  QuarantineTable(ring::Segment segment, uint32_t workers, uint32_t threads);
  std::span<uint64_t> marks(uint32_t worker) const;

  // Constant after construction. The memory they point to is accessed only through std::atomic_ref.
  ring::Segment segment_;
  uint32_t workers_;
  uint32_t threads_;
  std::span<uint64_t> marks_;
  std::span<uint64_t> denied_syscalls_;
  std::span<uint64_t> failures_;
  std::span<SharedUse> uses_;
  SampleSet suspects_;
  SampleSet quarantine_;
};

// CrashTrackingDataset: a dataset decorator that marks each read for stokerd and rejects samples in
// quarantine.
//
// Threads:   as Dataset. While a suspect is read, no other thread of this object reads.
// Ownership: dataset and table must outlive this object.
// Errors:    read(): kCorrupt for a sample in quarantine, so that it is replaced by the plan's
//            replacement sample and listed as any other sample error. kOutOfMemory if the worker
//            process runs out of memory. Otherwise the errors of the dataset.
class CrashTrackingDataset final : public data::DatasetDecorator {
 public:
  // `maybe_worker`: index of this process in the table. Without it (a thread of stokerd), reads are
  // not marked.
  CrashTrackingDataset(const data::Dataset& dataset, const QuarantineTable& table,
                       std::optional<uint32_t> maybe_worker)
      : DatasetDecorator(dataset), table_(table), maybe_worker_(maybe_worker) {}

  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override;
  data::BatchReadResult read_batch(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const override;

 private:
  Status read_marked(uint64_t sample, const data::RandomKey& random_key,
                     std::span<const std::span<std::byte>> outputs) const;

  const QuarantineTable& table_;
  const std::optional<uint32_t> maybe_worker_;
  mutable std::shared_mutex reading_;  // exclusive while a suspect is being read
};

}  // namespace stoker::feed
