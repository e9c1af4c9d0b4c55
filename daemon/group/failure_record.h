// FailureRecord: why a rank leaves its group, in the store for the others. When a collective fails,
// every rank that survives follows these records to the rank that caused it, so that all report the
// same one: the rank that failed, or that left without a record (it was killed, or hangs).
//
// Threads:  any.
// Blocking: wait_for_failure_record() for `grace`; find_failed_rank() for `grace` per missing record, of which
//           there are at most two, but not for a rank that is known to have exited.
// Errors:   kPeerLost: the store does not respond.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "daemon/group/store.h"
#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::group {

// The lost rank of a collective of the backend, which does not tell it.
inline constexpr int kUnknownRank = -1;

struct FailureRecord {
  int rank = 0;
  // To which the connection failed, or kUnknownRank; nullopt: the failure is its own.
  std::optional<int> lost_rank = {};
  std::string reason;
  StatusCode code = StatusCode::kOk;  // of a failure of its own, except a stop

  bool operator==(const FailureRecord&) const = default;
};

// The first record of a rank is kept.
Status write_failure_record(Store& store, const FailureRecord& record);

// nullopt: the rank has none so far.
Result<std::optional<FailureRecord>> read_failure_record(Store& store, int rank);

// The same, but waits for it, because a connection can be closed before the record is written.
Result<std::optional<FailureRecord>> wait_for_failure_record(Store& store, int rank,
                                                             std::chrono::milliseconds grace);

struct FailedRank {
  int rank = 0;
  std::optional<std::string> reason = {};  // nullopt: it left no record
  StatusCode code = StatusCode::kOk;       // of the record
  // The two ranks report that they lost each other: the network between them failed.
  std::optional<int> disconnected_from = {};

  bool operator==(const FailedRank&) const = default;
};

// Follows the records from `suspect`, the rank to which the connection failed. kUnknownRank: finds the
// first rank that failed by itself, or else the first without a record; nullopt: there is none.
// `has_exited`: a record that such a rank has not written will never be.
Result<std::optional<FailedRank>> find_failed_rank(Store& store, int suspect, int world_size,
                                                   std::chrono::milliseconds grace,
                                                   const std::function<bool(int rank)>& has_exited);

// Writes why this rank failed to the error file of torchrun, which shows that of the first rank that
// failed. Not for ranks that exit because another one did.
Status write_error_file(FileSystem& files, const std::string& path, const std::string& reason,
                        std::chrono::seconds since_epoch);

}  // namespace stoker::group
