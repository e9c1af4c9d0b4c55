// InspectionBoard: buffers the records of inspections from the trainer until clients fetch them.
//
// The records of an inspection are numbered from 1. Only the newest are buffered; a client that
// reads too late is told the number of dropped records and never delays the trainer. An inspection
// that is not read for kLease ends.
//
// Threads:  open(), push(), is_wanted(), end() and end_all() from the trainer thread; read(), peek()
//           and close() from any thread.
// Blocking: the lock is held while the reply is assembled.
// Errors:   kBusy: kMaxInspections inspections are open. kNotFound: the inspection does not exist,
//           or has ended.
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
  static constexpr size_t kMaxRecords = 64;  // buffered, per inspection
  // In bytes, per inspection; one record is always buffered.
  static constexpr size_t kMaxBytes = size_t{4} << 20;
  static constexpr size_t kReplyBytes = size_t{256} << 10;  // per reply; one record is always sent
  static constexpr std::chrono::seconds kLease{30};         // maximum time without a read

  // `clock` must outlive this object.
  explicit InspectionBoard(Clock& clock) : clock_(clock) {}

  Result<uint64_t> open();
  // False if the inspection was closed or has not been read for kLease.
  bool is_wanted(uint64_t inspection);
  void push(uint64_t inspection, std::string record);  // a JSON object
  void end(uint64_t inspection, const std::string& why);
  void end_all(const std::string& why);

  // {"inspection":3,"records":[…],"next":17,"dropped":0,"end_reason":""}: the records after number
  // `after`, up to the size limit of a reply. `next` is the value of `after` for the next call,
  // `dropped` the number of records after `after` that were discarded. A nonempty `end_reason`
  // means that no more records follow; the inspection is then removed. The records up to `after` are
  // discarded.
  Result<std::string> read(uint64_t inspection, uint64_t after);
  // The same reply without any effect on the inspection: it discards and removes nothing and does not
  // count as a read.
  Result<std::string> peek(uint64_t inspection, uint64_t after);
  Status close(uint64_t inspection);

 private:
  struct Inspection {
    std::deque<std::string> records;
    size_t bytes = 0;
    uint64_t first = 1;  // number of the first of `records`
    std::chrono::nanoseconds read_at{0};
    std::string ended;
  };
  struct Reply {
    std::string json;
    bool is_last = false;
  };
  static Reply make_reply(uint64_t number, const Inspection& inspection, uint64_t after);
  bool is_over(const Inspection& inspection) const;
  Result<Inspection*> find(uint64_t inspection);

  Clock& clock_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<uint64_t, Inspection> inspections_;
  uint64_t last_ = 0;
};

}  // namespace stoker::train
