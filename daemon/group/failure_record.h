// FailureRecord: why a rank leaves its group, in the store for the others. When a collective fails,
// every rank that survives follows these records to the rank that caused it, so that all report the
// same one: the rank that failed, or that left without a record (it was killed, or hangs).
//
// Threads:  any.
// Blocking: find_failed_rank() for `grace` per missing record.
// Errors:   kPeerLost: the store does not respond.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "daemon/group/store.h"
#include "shared/base/status.h"

namespace stoker::group {

struct FailureRecord {
  int rank = 0;
  std::optional<int> lost_rank;  // to which the connection failed; nullopt: the failure is its own
  std::string reason;

  bool operator==(const FailureRecord&) const = default;
};

// The first record of a rank is kept.
Status write_failure_record(Store& store, const FailureRecord& record);

struct FailedRank {
  int rank = 0;
  std::optional<std::string> reason;  // nullopt: it left no record
  // The two ranks report that they lost each other: the network between them failed.
  std::optional<int> disconnected_from;

  bool operator==(const FailedRank&) const = default;
};

// Follows the records from `suspect`, the rank to which the connection failed.
Result<FailedRank> find_failed_rank(Store& store, int suspect, std::chrono::milliseconds grace);

}  // namespace stoker::group
