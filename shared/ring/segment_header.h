// Geometry: from a batch's layout to the constant part of a segment's header, and back with every
// check.
//
// Threads: values.
// Errors:  describe(): kInvalidArgument (slots, tickets, names, shapes), kNoSpace (too large for
//          any machine). read_layout(): kMismatch; it reads nothing outside `segment`, whatever the
//          header claims.
#pragma once

#include <cstddef>
#include <span>

#include "shared/base/status.h"
#include "shared/ring/batch_layout.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

// All constant fields; the atomic ones are zero.
Result<RingHeader> make_header(const BatchLayout& layout, const RingOptions& options);
// Fills a new segment of header.segment_bytes zero bytes: every slot free, the magic last.
void initialize_segment(std::span<std::byte> segment, const RingHeader& header,
                        const BatchLayout& layout);

struct SegmentView {
  RingHeader header;  // a copy: what another process writes there later changes nothing here
  BatchLayout layout;
};
Result<SegmentView> read_layout(std::span<const std::byte> segment);

}  // namespace stoker::ring
