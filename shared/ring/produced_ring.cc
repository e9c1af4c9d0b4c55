// A producer's side: claim, publish, give back.
#include "shared/ring/mapped_ring.h"

namespace stoker::ring {

std::optional<Result<Claim>> MappedRing::poll_ticket(ProducerId producer) {
  if (closed()) return closed_status();
  if (!producers_.alive(producer))
    return Status(StatusCode::kMismatch, "producer " + std::to_string(producer.index) +
                                             " generation " + std::to_string(producer.generation) +
                                             " is not in the ring");
  std::atomic_ref(producers_.find_row(producer)->polls).fetch_add(1, std::memory_order_relaxed);
  const uint64_t end = view_.header.end_ticket;
  const uint64_t next = next_ticket();
  const uint64_t limit = std::min(next + slots(), end);
  bool all_filled = limit == end;
  for (uint64_t ticket = next; ticket < limit; ++ticket) {
    const auto word = word_of(ticket);
    uint64_t seen = word.load();
    while (seen == plain_word(Phase::kFree, ticket) ||
           seen == plain_word(Phase::kRequeued, ticket)) {
      if (!word.compare_exchange_strong(seen, claimed_word(producer, ticket))) continue;
      // Either requeue() saw the claim, or this sees that the producer was taken out (both are
      // seq_cst).
      if (producers_.alive(producer)) return Claim{.ticket = ticket, .slot = slot_of(ticket)};
      abandon(producer, {.ticket = ticket, .slot = {}});
      return Status(StatusCode::kMismatch, "this producer was taken out of the ring");
    }
    all_filled = all_filled && seen == plain_word(Phase::kReady, ticket);
  }
  if (all_filled) return ended_status();
  return std::nullopt;
}

Result<Claim> MappedRing::claim(ProducerId producer, std::chrono::nanoseconds timeout) {
  ProducerRecord* row = producers_.find_row(producer);
  const Wait wait{.event = slot_freed_,
                  .waiting = row != nullptr ? &row->waiting : nullptr,
                  .waited_ns = header_.wait_slot_ns,
                  .timed_out = "no free slot"};
  return wait_for<Claim>(wait, timeout, [this, producer] { return poll_ticket(producer); });
}

void MappedRing::add_read_time(const ReadTime& spent) {
  add(header_.read_ns, spent.total);
  add(header_.decode_ns, spent.decode);
  add(header_.transform_ns, spent.transform);
}

bool MappedRing::publish(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  // Release: whoever sees the word sees the slot's bytes.
  if (!word_of(claim.ticket)
           .compare_exchange_strong(expected, plain_word(Phase::kReady, claim.ticket)))
    return false;
  std::atomic_ref(producers_.find_row(producer)->published).fetch_add(1, std::memory_order_relaxed);
  // The consumer waits for one ticket only; a wake-up for another would cost it two system calls.
  if (claim.ticket == next_ticket()) batch_ready_.notify();
  return true;
}

void MappedRing::abandon(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  if (word_of(claim.ticket)
          .compare_exchange_strong(expected, plain_word(Phase::kRequeued, claim.ticket)))
    slot_freed_.notify();
}

void MappedRing::add_completed_samples(ProducerId producer, uint64_t count) {
  if (ProducerRecord* row = producers_.find_row(producer))
    std::atomic_ref(row->samples).fetch_add(count, std::memory_order_relaxed);
}

}  // namespace stoker::ring
