// DeviceTraining: trains a model on a device as stokerd does, fed by a ring that never runs empty,
// so that only the step is measured.
//
// Threads: one at a time; an internal thread fills the ring.
// Errors:  create(): those of model, task, optimizer and device; kInternal: a LibTorch exception.
//          run(): kInternal.
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

  // Returns steps per second, measured after warm-up steps and until the device has finished.
  virtual Result<double> run(std::chrono::nanoseconds time) = 0;
  virtual int64_t parameters() const = 0;  // number of elements in parameters and buffers
};

}  // namespace stoker::bench
