// segment_header: converts a batch layout into the constant part of a segment header, and validates
// and reads it back.
//
// Threads:  values.
// Errors:   make_header(): kInvalidArgument (slots, tickets, names, shapes), kNoSpace (larger than
//           any machine supports). read_layout(): kMismatch. It never reads outside `segment`,
//           whatever the header contains.
#pragma once

#include <cstddef>
#include <span>

#include "shared/base/status.h"
#include "shared/ring/batch_layout.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

// Fills all constant fields; the atomic fields are zero.
Result<RingHeader> make_header(const BatchLayout& layout, const RingOptions& options);
// Initializes a new, zeroed segment of header.segment_bytes bytes: the first slots, in the order of
// their tickets, are free, those behind `allocated` of them are not allocated yet; the magic is written
// last.
void initialize_segment(std::span<std::byte> segment, const RingHeader& header,
                        const BatchLayout& layout, uint64_t allocated);

struct SegmentView {
  RingHeader header;  // a copy, not affected by later writes of other processes
  BatchLayout layout;
};
Result<SegmentView> read_layout(std::span<const std::byte> segment);

}  // namespace stoker::ring
