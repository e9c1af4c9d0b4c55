// EarlyStopRequest: RUN/eval/early_stop.json, by which the evaluator tells that the run may end. The trainer
// looks for it now and then; nothing else goes from the evaluator to the trainer.
//
// Threads: values; the functions from any thread.
// Errors:  kNotFound: none was made; kCorrupt: not the JSON that is written here; kIoError.
// Crash:   written to a temporary file, synced and renamed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::run {

struct EarlyStopRequest {
  uint64_t step = 0;   // whose evaluation decided it
  std::string rule;    // EarlyStopping::to_text(): a run with another rule does not obey
  std::string reason;  // for people
};

std::string to_json(const EarlyStopRequest& request);
Result<EarlyStopRequest> parse_early_stop_request(std::string_view json,
                                                  const std::string& path_in_messages);
Result<EarlyStopRequest> read_early_stop_request(const std::string& path);

}  // namespace stoker::run
