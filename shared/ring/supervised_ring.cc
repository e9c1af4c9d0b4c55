// The supervisor's side: who produces, and what becomes of a dead producer's tickets.
#include "shared/ring/mapped_ring.h"

namespace stoker::ring {

void MappedRing::set_producer_pid(ProducerId producer, int pid) {
  if (producers_.alive(producer)) std::atomic_ref(producers_.find_row(producer)->pid).store(pid);
}

uint64_t MappedRing::requeue(ProducerId crashed) {
  uint32_t waiting = 0;
  if (!producers_.remove(crashed, waiting)) return 0;
  if (waiting > 0) slot_freed_.leave(waiting);
  uint64_t handed_back = 0;
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket) {
    uint64_t expected = claimed_word(crashed, ticket);
    if (word_of(ticket).load() != expected) continue;
    reports_.clear_unfinished(ticket);
    if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kRequeued, ticket)))
      ++handed_back;
  }
  std::atomic_ref(header_.requeued).fetch_add(handed_back, std::memory_order_relaxed);
  producers_.free_row(crashed);
  slot_freed_.notify();
  return handed_back;
}

ProducerProgress MappedRing::progress(ProducerId producer) const {
  ProducerProgress progress;
  if (ProducerRecord* row = producers_.find_row(producer)) {
    progress.samples = std::atomic_ref(row->samples).load(std::memory_order_relaxed);
    progress.polls = std::atomic_ref(row->polls).load(std::memory_order_relaxed);
  }
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == claimed_word(producer, ticket))
      ++progress.claims;
  return progress;
}

}  // namespace stoker::ring
