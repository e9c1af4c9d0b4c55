// Profile: where the time of some steps went; as a Chrome trace, and as sums.
//
// Threads: values and functions of their arguments.
// Format:  the Trace Event Format of Chromium: complete events ("ph":"X") with times in microseconds, which Perfetto and
//          chrome://tracing open.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/train/step_observer.h"

namespace stoker::train {

struct PhaseSpan {
  Phase phase = Phase::kFeedWait;
  std::chrono::nanoseconds begin{0}, end{0};  // since the profile's beginning
};

struct ProfiledStep {
  uint64_t step = 0;
  std::chrono::nanoseconds begin{0}, end{0};
  std::vector<PhaseSpan> spans;  // by the trainer's thread; on the CPU it is the one that computes
  // When the device did it, which on a GPU is later than when the thread asked for it. Empty where
  // the device is the CPU.
  std::vector<PhaseSpan> device_spans;
};

struct Profile {
  std::string device;               // "cpu", "cuda:0"
  std::vector<ProfiledStep> steps;  // without the pauses between them
};

// The whole file.
std::string to_chrome_trace(const Profile& profile);

// `first_step`, `last_step`, `steps`, `total_ms`, `median_ms` of a step, and `phases`: `phase`,
// `median_ms` of what it took in a step, `sum_ms`, `share` of the total, and on a GPU
// `device_median_ms`, `device_sum_ms`. The last is `other`. Fields of a JSON object, without its
// braces: others can stand beside them.
std::string summary_fields(const Profile& profile);

}  // namespace stoker::train
