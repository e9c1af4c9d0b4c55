// EvaluationRequest: a request to evaluate one checkpoint, even if it was evaluated before. It is a
// file of RUN/eval/requests/, named after the step, which stokerctl or stokerd writes. The evaluator
// removes it after it has recorded the outcome with the id of the request.
//
// Threads:  values; functions of their arguments and the file system. Several programs may write at
//           the same time: of two requests for the same step, one remains.
// Errors:   kIoError, kNoSpace, kPermission. A file that is not a request is not an error.
// Crash:    written to a temporary file, synced and renamed, so a file is either complete or absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::run {

struct EvaluationRequest {
  uint64_t step = 0;
  std::string id;  // unique in the run
  std::string path;

  bool operator==(const EvaluationRequest&) const = default;
};

// Returns the request that is pending for this step, or writes one. Whether there is a checkpoint is
// for the caller to check.
Result<EvaluationRequest> request_evaluation(FileSystem& files, const RunLayout& layout,
                                             uint64_t step, Clock& clock);

struct EvaluationRequests {
  struct Invalid {
    std::string path;
    std::string reason;
  };
  std::vector<EvaluationRequest> pending;  // in step order
  std::vector<Invalid> invalid;
};

// Without the directory there are none.
Result<EvaluationRequests> read_evaluation_requests(const RunLayout& layout);

}  // namespace stoker::run
