// ReportArea: bounded, lock-free passage for reports of bad samples, from any producer to the
// trainer's side.
//
// A report belongs to the ticket that its writer holds, so that what a killed writer left half
// written is found and cleared when its tickets are handed on.
//
// Threads:  report() any; take() one at a time.
// Blocking: never; when all entries are taken, the report is counted as lost.
// Crash:    a report is seen whole or not at all: its word turns complete last.
#pragma once

#include <span>
#include <vector>

#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

class ReportArea {
 public:
  ReportArea(RingHeader& header, std::span<ReportRecord> entries)
      : header_(header), entries_(entries) {}

  void report(const BadSample& bad);
  std::vector<BadSample> take();  // in the order of their reports
  // Clears what the dead owner of `ticket` was writing. Before the ticket is handed on.
  void clear_unfinished(uint64_t ticket);

 private:
  RingHeader& header_;
  std::span<ReportRecord> entries_;
};

}  // namespace stoker::ring
