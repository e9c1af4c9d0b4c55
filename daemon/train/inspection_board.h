// InspectionBoard: where the trainer puts what its taps saw, and clients fetch it.
//
// A tap has numbered rows. It keeps the newest; a reader that comes too late for some is told how
// many, and never holds the trainer up. A tap that nobody reads ends by itself.
//
// Threads:  open(), push(), is_wanted() and end…() from the trainer's; read() and close() from any.
// Blocking: the lock is held for the copy of what is asked for.
// Errors:   kBusy: as many taps are open as there may be. kNotFound: no such tap, or no more.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace stoker::train {

class InspectionBoard {
 public:
  static constexpr size_t kMaxInspections = 8;
  static constexpr size_t kRows = 64;                       // of one tap, not fetched yet
  static constexpr size_t kBytes = size_t{4} << 20;         // the same; one row always has room
  static constexpr size_t kReplyBytes = size_t{256} << 10;  // of one read; one row always goes
  static constexpr std::chrono::seconds kLease{30};         // without a read

  // `clock` must outlive this object.
  explicit InspectionBoard(Clock& clock) : clock_(clock) {}

  Result<uint64_t> open();
  // False when nobody wants more of it: closed, or not read for kLease.
  bool is_wanted(uint64_t inspection);
  void push(uint64_t inspection, std::string row);  // a JSON object
  void end(uint64_t inspection, const std::string& why);
  void end_all(const std::string& why);

  // {"inspection":3,"records":[…],"next":17,"dropped":0,"end_reason":""}: the records after number
  // `after`, as many as a reply may have; `next` is what to give the next time, `dropped` counts
  // those after `after` that are gone. `end_reason` says why there will be no more, which is then
  // forgotten.
  Result<std::string> read(uint64_t inspection, uint64_t after);
  Status close(uint64_t inspection);

 private:
  struct Inspection {
    std::deque<std::string> rows;
    size_t bytes = 0;
    uint64_t first = 1;  // number of the first of `rows`
    std::chrono::nanoseconds read_at{0};
    std::string ended;
  };
  bool is_over(const Inspection& inspection) const;
  Result<Inspection*> find(uint64_t inspection);

  Clock& clock_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<uint64_t, Inspection> inspections_;
  uint64_t last_ = 0;
};

}  // namespace stoker::train
