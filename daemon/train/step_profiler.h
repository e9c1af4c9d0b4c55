// StepProfiler: records when the phases of some steps start and end.
//
// On a GPU the trainer thread only enqueues work, so each phase is also timed by two events on the
// device's stream. The events are read after the last step, so no step waits for the device.
//
// Threads: the trainer thread only.
// Errors:  begin() and take() pass on LibTorch's exceptions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "daemon/train/kernel_profile.h"
#include "daemon/train/profile.h"
#include "shared/base/clock.h"
#include "shared/control/command.h"

namespace stoker::train {

struct RecordedProfile {
  Profile profile;
  KernelProfile::Save save_kernels;  // empty if not requested
};

class StepProfiler {
 public:
  // `clock` must outlive this object.
  StepProfiler(const control::Profile& request, Clock& clock, c10::Device device);

  Status start();
  // Starts a step; discards an unfinished step.
  void begin_step();
  void end_step(uint64_t step);
  void begin(Phase phase);
  void end(Phase phase) noexcept;

  bool is_full() const { return profile_.steps.size() >= request_.steps; }
  size_t steps() const { return profile_.steps.size(); }
  uint64_t requested_steps() const { return request_.steps; }
  // Waits for the device.
  Result<RecordedProfile> take();

 private:
  struct DeviceSpan {
    size_t step = 0;  // index into profile_.steps
    Phase phase = Phase::kCopy;
    c10::Event begin, end;
  };
  std::chrono::nanoseconds now() const { return clock_.monotonic() - began_; }
  c10::Event mark_on_device() const;
  void read_device_spans();

  const control::Profile request_;
  Clock& clock_;
  const c10::Device device_;
  std::chrono::nanoseconds began_{0};
  Profile profile_;
  ProfiledStep current_;
  std::vector<DeviceSpan> device_spans_;
  std::optional<c10::Event> device_began_;
  std::optional<KernelProfile> kernels_;
};

}  // namespace stoker::train
