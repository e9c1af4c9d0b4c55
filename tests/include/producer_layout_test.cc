// include/stoker/producer.h has its own copy of the ring's layout, so that it needs no other header.
// Here it is compared with that of the ring.
#include <gtest/gtest.h>
#include <stoker/producer.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::producer::internal {
namespace {

#define SAME_VALUE(ours, theirs) static_assert((ours) == (theirs))
#define SAME_FIELD(record, field)                                           \
  static_assert(offsetof(record, field) == offsetof(ring::record, field) && \
                sizeof(record::field) == sizeof(ring::record::field) &&     \
                std::is_same_v<decltype(record::field), decltype(ring::record::field)>)
#define SAME_EVENT(field) \
  static_assert(offsetof(RingHeader, field) == offsetof(ring::RingHeader, field))

SAME_VALUE(kRingVersion, ring::kVersion);
SAME_VALUE(kMagic, ring::kMagic);
SAME_VALUE(kCacheLine, ring::kCacheLine);
SAME_VALUE(kPayloadAlignment, ring::kPayloadAlignment);
SAME_VALUE(kMaxTensors, ring::kMaxTensors);
SAME_VALUE(kMaxRank, ring::kMaxRank);
SAME_VALUE(kMaxNameBytes, ring::kMaxNameBytes);
SAME_VALUE(kMaxSlots, ring::kMaxSlots);
SAME_VALUE(kMaxSegmentBytes, ring::kMaxSegmentBytes);
SAME_VALUE(kMaxTicket, ring::kMaxTicket);
SAME_VALUE(kProducers, ring::kMaxProducers);
SAME_VALUE(kMaxGeneration, ring::kMaxGeneration);
SAME_VALUE(kReports, ring::kReports);
SAME_VALUE(kReasonBytes, ring::kReasonBytes);

SAME_VALUE(sizeof(RingHeader), sizeof(ring::RingHeader));
SAME_FIELD(RingHeader, magic);
SAME_FIELD(RingHeader, version);
SAME_FIELD(RingHeader, header_bytes);
SAME_FIELD(RingHeader, segment_bytes);
SAME_FIELD(RingHeader, slots);
SAME_FIELD(RingHeader, batch);
SAME_FIELD(RingHeader, slot_bytes);
SAME_FIELD(RingHeader, slot_stride);
SAME_FIELD(RingHeader, first_ticket);
SAME_FIELD(RingHeader, end_ticket);
SAME_FIELD(RingHeader, tensors);
SAME_FIELD(RingHeader, producers);
SAME_FIELD(RingHeader, reports);
SAME_FIELD(RingHeader, tensor_table);
SAME_FIELD(RingHeader, slot_table);
SAME_FIELD(RingHeader, producer_table);
SAME_FIELD(RingHeader, report_table);
SAME_FIELD(RingHeader, payload);
SAME_FIELD(RingHeader, next_ticket);
SAME_EVENT(slot_freed);
SAME_EVENT(batch_ready);
SAME_FIELD(EventWords, epoch);
SAME_FIELD(EventWords, waiters);
SAME_FIELD(RingHeader, closed);
SAME_FIELD(RingHeader, requeued);
SAME_FIELD(RingHeader, sample_errors);
SAME_FIELD(RingHeader, lost_reports);
SAME_FIELD(RingHeader, next_report);

SAME_VALUE(sizeof(TensorRecord), sizeof(ring::TensorRecord));
SAME_FIELD(TensorRecord, name);
SAME_FIELD(TensorRecord, dtype);
SAME_FIELD(TensorRecord, rank);
SAME_FIELD(TensorRecord, shape);
SAME_FIELD(TensorRecord, offset);
SAME_FIELD(TensorRecord, row_bytes);

SAME_VALUE(sizeof(SlotRecord), sizeof(ring::SlotRecord));
SAME_FIELD(SlotRecord, word);

SAME_VALUE(sizeof(ProducerRecord), sizeof(ring::ProducerRecord));
SAME_FIELD(ProducerRecord, word);
SAME_FIELD(ProducerRecord, pid);
SAME_FIELD(ProducerRecord, waiting);
SAME_FIELD(ProducerRecord, polls);
SAME_FIELD(ProducerRecord, published);
SAME_FIELD(ProducerRecord, samples);

SAME_VALUE(sizeof(ReportRecord), sizeof(ring::ReportRecord));
SAME_FIELD(ReportRecord, word);
SAME_FIELD(ReportRecord, ticket);
SAME_FIELD(ReportRecord, sample);
SAME_FIELD(ReportRecord, code);
SAME_FIELD(ReportRecord, length);
SAME_FIELD(ReportRecord, reason);

constexpr uint64_t word_of(ring::Phase phase, uint32_t owner = 0, uint32_t generation = 0) {
  return ring::encode(
      {.phase = phase, .owner = owner, .generation = generation, .turn = 0xfedcba98});
}
SAME_VALUE(slot_word(Phase::kFree, 0xfedcba98), word_of(ring::Phase::kFree));
SAME_VALUE(slot_word(Phase::kClaimed, 0xfedcba98, {.index = 63, .generation = 0xfffff}),
           word_of(ring::Phase::kClaimed, 63, 0xfffff));
SAME_VALUE(slot_word(Phase::kReady, 0xfedcba98), word_of(ring::Phase::kReady));
SAME_VALUE(slot_word(Phase::kInUse, 0xfedcba98), word_of(ring::Phase::kInUse));
SAME_VALUE(slot_word(Phase::kRequeued, 0xfedcba98), word_of(ring::Phase::kRequeued));

SAME_VALUE(static_cast<uint64_t>(ReportPhase::kFree),
           static_cast<uint64_t>(ring::ReportPhase::kFree));
SAME_VALUE(static_cast<uint64_t>(ReportPhase::kWriting),
           static_cast<uint64_t>(ring::ReportPhase::kWriting));
SAME_VALUE(static_cast<uint64_t>(ReportPhase::kComplete),
           static_cast<uint64_t>(ring::ReportPhase::kComplete));

SAME_VALUE(static_cast<uint32_t>(SampleError::kNotFound),
           static_cast<uint32_t>(StatusCode::kNotFound));
SAME_VALUE(static_cast<uint32_t>(SampleError::kCorrupt),
           static_cast<uint32_t>(StatusCode::kCorrupt));
SAME_VALUE(static_cast<uint32_t>(SampleError::kIoError),
           static_cast<uint32_t>(StatusCode::kIoError));

TEST(ProducerLayoutTest, HasElementTypesOfRing) {
  for (uint32_t number = 1; number <= static_cast<uint32_t>(stoker::DType::kI16); ++number) {
    const auto ours = static_cast<DType>(number);
    const auto theirs = static_cast<stoker::DType>(number);
    EXPECT_EQ(to_string(ours), stoker::to_string(theirs));
    EXPECT_EQ(element_bytes(ours), dtype_bytes(theirs));
  }
  for (const uint32_t number : {0u, static_cast<uint32_t>(stoker::DType::kI16) + 1, ~0u}) {
    EXPECT_EQ(element_bytes(static_cast<DType>(number)), 0u);
    EXPECT_EQ(to_string(static_cast<DType>(number)), "?");
  }
}

}  // namespace
}  // namespace stoker::producer::internal
