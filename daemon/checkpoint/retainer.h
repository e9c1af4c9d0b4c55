// Retainer: removes the checkpoints of a run that its settings do not keep.
//
// Threads:  one, that of the checkpoint writer.
// Blocking: for the disk.
// Owner:    store, clock and layout must outlive this object.
// Errors:   logged; what could not be removed is looked at again the next time.
// Crash:    as CheckpointStore::retire().
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>

#include "shared/base/clock.h"
#include "shared/checkpoint/store.h"
#include "shared/config/config.h"
#include "shared/retention/checkpoint_facts.h"
#include "shared/retention/retention.h"
#include "shared/run/run_layout.h"

namespace stoker::writer {

class Retainer {
 public:
  Retainer(const config::Config& config, checkpoint::CheckpointStore& store,
           const run::RunLayout& layout, Clock& clock);

  // `is_short`: the disk has no room for the next checkpoint.
  void retire(bool is_short);

 private:
  void tell_of_unevaluated(const std::vector<retention::CheckpointFacts>& facts,
                           const std::vector<uint64_t>& gone, bool is_short) const;
  void tell_of_held(const std::vector<uint64_t>& held);
  void tell_of_damaged(const std::vector<retention::Decision>& decisions);

  const retention::RetentionRule rule_;
  const retention::FactsWanted wanted_;
  checkpoint::CheckpointStore& store_;
  const run::RunLayout& layout_;
  Clock& clock_;

  std::map<uint64_t, std::chrono::nanoseconds> held_since_;  // those that a reader keeps from going
  std::set<uint64_t> told_;  // those of which that, or their damage, was said
};

}  // namespace stoker::writer
