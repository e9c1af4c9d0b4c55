// MinimalState: the state of a run without a model. Each step is a function of the previous state, so
// that an incorrect resume changes every later checkpoint.
//
// Threads: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/writer/snapshot.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::test {

struct MinimalState {
  uint64_t step = 0;
  std::array<int64_t, 96> weights{};
  std::array<int64_t, 96> momentum{};

  static MinimalState at(uint64_t step);  // of an uninterrupted run
  void advance();
  double loss() const;
  bool operator==(const MinimalState&) const = default;

  void put_into(writer::Snapshot& snapshot) const;
  static Result<MinimalState> read_from(const checkpoint::VerifiedCheckpoint& checkpoint);
};

}  // namespace stoker::test
