// The consumer's side: batches in the order of their tickets.
#include <string>

#include "shared/ring/mapped_ring.h"

namespace stoker::ring {

std::optional<Result<ReadyBatch>> MappedRing::poll_batch() {
  if (closed()) return closed_status();
  const uint64_t ticket = next_ticket();
  if (ticket >= view_.header.end_ticket) return ended_status();
  // Sequentially consistent, as the store of next_ticket before it: either this sees the batch, or
  // its producer sees which ticket is waited for (publish).
  uint64_t seen = word_of(ticket).load();
  if (seen == plain_word(Phase::kReady, ticket)) {
    if (!word_of(ticket).compare_exchange_strong(seen, plain_word(Phase::kInUse, ticket)))
      return std::nullopt;
    std::atomic_ref(header_.next_ticket).store(ticket + 1);
    return ReadyBatch{.ticket = ticket, .slot = slot_of(ticket)};
  }
  const SlotState state = decode(seen);
  const bool still_held = state.phase == Phase::kInUse && state.turn == turn_of(ticket) - 1;
  const bool on_its_way = state.turn == turn_of(ticket) &&
                          (state.phase == Phase::kFree || state.phase == Phase::kClaimed ||
                           state.phase == Phase::kReady || state.phase == Phase::kRequeued);
  if (still_held || on_its_way) return std::nullopt;
  return Status(StatusCode::kCorrupt, "ring slot " + std::to_string(ticket % slots()) +
                                          " holds state " + std::to_string(seen) +
                                          " instead of ticket " + std::to_string(ticket) +
                                          ": a worker process wrote over the ring");
}

Result<ReadyBatch> MappedRing::pop(std::chrono::nanoseconds timeout) {
  const Wait wait{.event = batch_ready_,
                  .waiting = nullptr,
                  .waited_ns = header_.wait_batch_ns,
                  .timed_out = "no batch ready"};
  return wait_for<ReadyBatch>(wait, timeout, [this] { return poll_batch(); });
}

void MappedRing::release(uint64_t ticket) {
  uint64_t expected = plain_word(Phase::kInUse, ticket);
  if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kFree, ticket + slots())))
    // One slot is of use to one producer. Should that one be stopped, the others look again within
    // 100 ms.
    slot_freed_.notify_one();
}

}  // namespace stoker::ring
