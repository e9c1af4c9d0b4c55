// QuarantineTable: what stokerd and its reader processes tell each other about samples that kill
// their reader, in one sealed memfd beside the ring.
//
// Four parts. Marks: what each reading thread has in hand, so that stokerd knows what a dead
// process was reading. Suspects: samples that were in hand when a process died; each is read alone
// in its process, so that the next death names one sample. Quarantine: samples that nobody reads
// any more. Forbidden calls: the system call that ended a process, which its filter does not allow.
//
// Threads:  every method may be called from any thread and process. Lock-free.
// Blocking: never.
// Owner:    the kernel frees the memfd with its last user.
// Errors:   create(): as ring::Segment. attach(): kMismatch (no table, or another build's).
// Format:   version 3, words of 64 bits; an entry is the sample's number + 1, 0 = none. Only stokerd
//           and the stoker-feed beside it share it.
// Crash:    a dead process's marks stay, which is their purpose; drain_marks() clears them.
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
#include "shared/ring/segment.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxSuspects = 256;
inline constexpr uint64_t kMaxQuarantined = 256;

class QuarantineTable {
 public:
  // `workers` processes of at most `threads` reading threads each.
  static Result<QuarantineTable> create(uint32_t workers, uint32_t threads);
  static Result<QuarantineTable> attach(UniqueFd fd);

  int fd() const { return segment_.fd(); }
  uint32_t workers() const { return workers_; }

  // In hand of process `worker`, as long as the object lives: one sample, or up to kSamplesAMark that
  // are read together.
  static constexpr uint64_t kSamplesAMark = 32;
  class Mark {
   public:
    Mark(const QuarantineTable& table, uint32_t worker, uint64_t sample);
    ~Mark();
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    void add(uint64_t sample);

   private:
    uint64_t* maybe_words_ = nullptr;  // null: more threads than the table was made for
    uint64_t samples_ = 1;
  };
  // What the dead process `worker` had in hand.
  std::vector<uint64_t> drain_marks(uint32_t worker) const;

  // Where process `worker` leaves the number of a forbidden system call, plus 1.
  uint64_t& denied_syscall_slot(uint32_t worker) const;
  std::optional<uint64_t> take_denied_syscall(uint32_t worker) const;

  // Whether there is any suspect, or any sample in quarantine.
  bool has_entries() const { return suspects_.any() || quarantine_.any(); }
  bool suspected(uint64_t sample) const { return suspects_.contains(sample); }
  bool suspect(uint64_t sample) const { return suspects_.add(sample); }  // false: no room
  void clear_suspect(uint64_t sample) const { suspects_.remove(sample); }

  bool quarantined(uint64_t sample) const { return quarantine_.contains(sample); }
  bool quarantine(uint64_t sample) const { return quarantine_.add(sample); }  // false: no room

 private:
  // A few samples in shared memory. Entries are what counts; `count` only saves the search.
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

  // Constant after construction; what they point to is only touched through std::atomic_ref.
  ring::Segment segment_;
  uint32_t workers_;
  uint32_t threads_;
  std::span<uint64_t> marks_;
  std::span<uint64_t> denied_syscalls_;
  SampleSet suspects_;
  SampleSet quarantine_;
};

// CrashTrackingDataset: a data set whose reads leave a trace for stokerd, and which refuses samples in
// quarantine.
//
// Threads:  as Dataset. A suspected sample is read while no other thread of this object reads.
// Owner:    dataset and table must outlive this object.
// Errors:   read(): kCorrupt for a sample in quarantine, so that the plan's stand-in takes its
//           place and the sample is listed as every other bad one; kOutOfMemory where a reader
//           process has no memory left for it; otherwise the data set's.
class CrashTrackingDataset final : public data::DatasetDecorator {
 public:
  // `maybe_worker`: this process's number in the table; none (a thread of stokerd) leaves no trace.
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
  mutable std::shared_mutex reading_;  // exclusive: a suspect is being read
};

}  // namespace stoker::feed
