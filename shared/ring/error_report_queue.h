// ErrorReportQueue: bounded, lock-free passage for reports of bad samples, from any producer to the
// trainer's side.
//
// A report belongs to the ticket that its writer holds, so that what a killed writer left half
// written is found and cleared when its tickets are handed on.
//
// Threads:  report() any; drain() one at a time.
// Blocking: report(), while all entries are taken, at most a second, and not once the ring is closed.
//           Then the report is counted as lost, and none waits until there is room again: nobody
//           takes them.
// Crash:    a report is seen whole or not at all: its word turns complete last.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

class ErrorReportQueue {
 public:
  ErrorReportQueue(RingHeader& header, std::span<ReportRecord> entries)
      : header_(header), entries_(entries) {}

  void report(const SampleError& error);
  std::vector<SampleError> drain();  // in the order of their reports
  // Clears what the dead owner of `ticket` was writing. Before the ticket is handed on.
  void clear_unfinished(uint64_t ticket);

 private:
  bool try_report(const SampleError& error);  // false: there is no room

  RingHeader& header_;
  std::span<ReportRecord> entries_;
  // Of this process: written by whoever reports. A hint, which nothing is ordered by.
  std::atomic<bool> is_drained_{true};
};

}  // namespace stoker::ring
