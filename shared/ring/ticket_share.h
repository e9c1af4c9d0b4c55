// TicketShare: the tickets of one rank, if several processes share each step of a run. Of the
// tickets of a step, in order, each rank has one stretch of equal length, the first rank the first.
//
// Tickets count from the first ticket of a step. With one rank, every ticket is in its share.
//
// Threads: values; pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stoker::ring {

struct TicketShare {
  uint64_t tickets_per_step = 1;  // of all ranks
  uint64_t rank = 0;
  uint64_t world_size = 1;

  bool is_valid() const {
    return tickets_per_step > 0 && rank < world_size && tickets_per_step % world_size == 0;
  }
  uint64_t length() const { return tickets_per_step / world_size; }  // own tickets per step
  uint64_t begin() const { return rank * length(); }  // the first of them in its step

  // The own ticket before which there are `index` others of the own.
  uint64_t ticket_at(uint64_t index) const {
    return index / length() * tickets_per_step + begin() + index % length();
  }
  // The number of own tickets before `ticket`: the inverse of ticket_at() for an own ticket.
  uint64_t count_before(uint64_t ticket) const {
    const uint64_t in_step = ticket % tickets_per_step;
    return ticket / tickets_per_step * length() +
           std::min(in_step - std::min(in_step, begin()), length());
  }
  bool contains(uint64_t ticket) const {
    const uint64_t in_step = ticket % tickets_per_step;
    return in_step >= begin() && in_step - begin() < length();
  }
};

}  // namespace stoker::ring
