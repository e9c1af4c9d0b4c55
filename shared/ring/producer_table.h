// ProducerTable: which producers there are. A row is used again under a higher generation, never
// the same one.
//
// Threads: every method may be called from any thread and process.
// Crash:   a row stays in use until remove(), which only the supervisor of a dead producer calls.
#pragma once

#include <span>
#include <string_view>

#include "shared/base/status.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

class ProducerTable {
 public:
  explicit ProducerTable(std::span<ProducerRecord> rows) : rows_(rows) {}

  Result<ProducerId> add(std::string_view name);  // kBusy
  bool alive(ProducerId producer) const;
  // From now on the producer gets no claim. Returns how many of its threads were waiting; false: it
  // was not alive.
  bool remove(ProducerId producer, uint32_t& waiting);
  void free_row(ProducerId producer);  // after remove(), when nothing is left of it
  ProducerRecord* find_row(ProducerId producer);

 private:
  std::span<ProducerRecord> rows_;
};

}  // namespace stoker::ring
