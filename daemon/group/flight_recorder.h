// FlightRecorder: the last collectives of this rank, which it writes to a file when the group has lost a
// rank or hangs. The files of all ranks show which rank is at another collective than the others.
//
// As PyTorch's Flight Recorder, which records collectives of Python programs.
//
// Threads:  every method may be called from any thread; none waits for a collective.
// Blocking: write(), at most for its timeout.
// Memory:   constant: the last kCapacity collectives.
// Errors:   write(): I/O errors; kTimedOut if the storage does not respond.
// Format:   docs/distributed.md.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::group {

// The tensors of a collective.
struct CollectiveSizes {
  static constexpr size_t kMaxListed = 8;

  void add(int64_t elements, uint64_t bytes);

  size_t tensors = 0;
  uint64_t bytes = 0;
  std::array<int64_t, kMaxListed> elements{};  // of the first tensors
};

class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 512;
  static constexpr std::chrono::milliseconds kWriteTimeout{1000};

  struct Owner {
    int rank = 0;
    int world_size = 1;
    std::string path;  // of the file
  };
  // `clock` must outlive this object.
  explicit FlightRecorder(Owner owner, Clock& clock = system_clock());

  // The step of the collectives that start from now on; before the first call 0.
  void begin_step(uint64_t step);
  bool has_steps() const;
  // Returns the sequence number, from 1. `operation` must be a literal.
  uint64_t start(const char* operation, const CollectiveSizes& sizes = {});
  void complete(uint64_t sequence);  // no effect if it is not recorded any more
  uint64_t num_events() const;       // starts and ends so far

  // From now on the group is expected to end: nothing is written if it loses a rank.
  void end_training();
  bool has_ended() const;

  // Replaces the file, without a sync: it need not survive a power cut, and the process must end. A thread
  // writes it and is left alone after `timeout`, so `files` must live as long as the process.
  // `reason`: why this rank leaves.
  Status write(FileSystem& files, const std::string& reason,
               std::chrono::milliseconds timeout = kWriteTimeout) const;
  const std::string& path() const { return owner_.path; }
  // A line for the rank, and one for each collective, oldest first.
  std::string to_jsonl(const std::string& reason) const;

 private:
  struct Collective {
    uint64_t sequence = 0;
    const char* operation = "";
    uint64_t step = 0;
    CollectiveSizes sizes;
    std::chrono::system_clock::time_point started_at;
    std::chrono::nanoseconds started{0};
    std::chrono::nanoseconds completed{0};
    bool is_complete = false;
  };

  Collective& at(uint64_t sequence) { return ring_[sequence % kCapacity]; }

  // Constant after construction.
  const Owner owner_;
  Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::array<Collective, kCapacity> ring_;
  uint64_t recorded_ = 0;
  uint64_t completed_ = 0;
  uint64_t step_ = 0;
  bool has_ended_ = false;
};

// At the start of a group: renames the file of the start before to PATH.previous, which replaces that of
// an earlier start, so that all ranks' files are of the same start. An error is logged.
void set_aside_flight_record(FileSystem& files, const std::string& path);

}  // namespace stoker::group
