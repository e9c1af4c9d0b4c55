#include "shared/ring/shm_ring.h"

#include <utility>

#include "shared/ring/mapped_ring.h"

namespace stoker::ring {
namespace {

template <typename T>
std::span<T> table(std::span<std::byte> segment, uint64_t offset, size_t count) {
  return {reinterpret_cast<T*>(segment.data() + offset), count};
}

}  // namespace

MappedRing::MappedRing(Segment segment, SegmentView known)
    : segment_(std::move(segment)),
      view_(std::move(known)),
      header_(*reinterpret_cast<RingHeader*>(segment_.bytes().data())),
      slot_records_(
          table<SlotRecord>(segment_.bytes(), view_.header.slot_table, view_.header.slots)),
      producers_(
          table<ProducerRecord>(segment_.bytes(), view_.header.producer_table, kMaxProducers)),
      reports_(header_, table<ReportRecord>(segment_.bytes(), view_.header.report_table, kReports)),
      slot_freed_(header_.slot_freed),
      batch_ready_(header_.batch_ready) {}

void MappedRing::close() {
  std::atomic_ref(header_.closed).store(1);
  slot_freed_.notify();
  batch_ready_.notify();
}

RingCounters MappedRing::counters() const {
  const auto read = [](uint64_t& counter) {
    return std::atomic_ref(counter).load(std::memory_order_relaxed);
  };
  const uint64_t next = next_ticket();
  RingCounters counters{.consumed = next - view_.header.first_ticket,
                        .requeued = read(header_.requeued),
                        .sample_errors = read(header_.sample_errors),
                        .lost_reports = read(header_.lost_reports),
                        .read_ns = read(header_.read_ns),
                        .decode_ns = read(header_.decode_ns),
                        .transform_ns = read(header_.transform_ns),
                        .wait_slot_ns = read(header_.wait_slot_ns),
                        .wait_batch_ns = read(header_.wait_batch_ns)};
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == plain_word(Phase::kReady, ticket))
      ++counters.ready;
  counters.published = counters.consumed + counters.ready;
  return counters;
}

Result<std::unique_ptr<ShmRing>> ShmRing::create(const BatchLayout& layout,
                                                 const RingOptions& options) {
  STOKER_ASSIGN_OR_RETURN(const RingHeader header, make_header(layout, options));
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::create(header.segment_bytes));
  initialize_segment(segment.bytes(), header, layout);
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), SegmentView{header, layout}));
}

Result<std::unique_ptr<ShmRing>> ShmRing::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::attach(std::move(fd)));
  STOKER_ASSIGN_OR_RETURN(SegmentView known, read_layout(segment.bytes()));
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), std::move(known)));
}

}  // namespace stoker::ring
