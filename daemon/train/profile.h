// Profile: the time spent in each phase of some steps, written as a Chrome trace and as a summary.
//
// Threads: values and pure functions.
// Format:  Chromium's Trace Event Format: complete events ("ph":"X") with times in microseconds,
//          for Perfetto and chrome://tracing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "daemon/train/step_observer.h"

namespace stoker::train {

struct PhaseSpan {
  Phase phase = Phase::kDataWait;
  std::chrono::nanoseconds begin{0}, end{0};  // since the start of the profile
};

struct ProfiledStep {
  uint64_t step = 0;
  std::chrono::nanoseconds begin{0}, end{0};
  std::vector<PhaseSpan> spans;  // on the trainer thread, which on the CPU also computes
  // The times on the device. On a GPU they are later than those of the thread, which only enqueues
  // the work. Empty on the CPU.
  std::vector<PhaseSpan> device_spans;
};

struct Profile {
  std::string device;               // "cpu", "cuda:0"
  std::vector<ProfiledStep> steps;  // without the pauses between them
};

// The complete contents of a trace file.
std::string to_chrome_trace(const Profile& profile);

// `first_step`, `last_step`, `steps`, `device`, `total_ms`, `median_ms` per step, and `phases`.
// Each phase has `phase`, `median_ms` per step, `sum_ms` and `share` of the total; on a GPU also
// `device_median_ms` and `device_sum_ms`. The last phase is `other`.
boost::json::object summarize(const Profile& profile);

}  // namespace stoker::train
