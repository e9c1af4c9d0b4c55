// TrainConfig: the settings under train: how long, in what portions, on which device.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::config {

struct TrainConfig {
  uint64_t steps = 2000;
  int64_t batch = 16;               // samples a micro-batch
  std::string device = "auto";      // auto | cpu | cuda | cuda:N
  std::string precision = "fp32";   // fp32 | tf32 | bf16 | fp16
  bool channels_last = false;       // models over pictures: memory in the order of pixels
  bool flush_denormals = false;     // numbers too small for full precision are taken for 0
  double ema = 0;                   // decay of the weights' moving average; 0 = none is kept
  std::string cuda_graph = "auto";  // auto | off
  int64_t accumulate = 1;           // micro-batches a step
  int threads = 0;                  // of LibTorch; 0 = all cores
  // What a loss or gradient that is not a finite number leads to: stop | skip | rollback.
  std::string on_nonfinite = "stop";
  int nonfinite_limit = 10;  // skip: steps in a row; rollback: times in a run; then it is stopped
  double rollback_lr = 0.5;  // rollback: the learning rate is multiplied by it

  bool operator==(const TrainConfig&) const = default;
};

}  // namespace stoker::config
