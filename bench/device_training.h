// DeviceTraining: a model that is trained on a device as stokerd does it, fed by a ring that never
// runs dry, so that the step is all there is to measure.
//
// Threads: one at a time; a thread of its own fills the ring.
// Errors:  create(): as model, task, optimizer and device; kInternal: LibTorch threw. run(): the
//          latter.
#pragma once

#include <chrono>
#include <memory>

#include "bench/device_setups.h"
#include "shared/base/status.h"

namespace stoker::bench {

class DeviceTraining {
 public:
  static Result<std::shared_ptr<DeviceTraining>> create(const DeviceSetup& setup);
  virtual ~DeviceTraining() = default;

  // Steps a second, after some that are not counted: until the device has done the last.
  virtual Result<double> run(std::chrono::nanoseconds time) = 0;
  virtual int64_t parameters() const = 0;  // numbers of the model's parameters and buffers
};

}  // namespace stoker::bench
