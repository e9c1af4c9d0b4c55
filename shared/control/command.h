// Command: what a client can ask of training; parsed once from a line of the control socket
// (protocol.h), and carried unchanged to the trainer's mailbox. Call: that, and what the control
// server answers by itself.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "shared/base/status.h"

namespace stoker::control {

inline constexpr double kMaxLearningRate = 1e3;

// ---- Executed by the trainer between two steps

struct Pause {
  bool operator==(const Pause&) const = default;
};

struct Resume {
  bool operator==(const Resume&) const = default;
};

struct SaveCheckpoint {
  bool operator==(const SaveCheckpoint&) const = default;
};

struct Stop {
  bool operator==(const Stop&) const = default;
};

struct SetLearningRate {
  double lr = 0;

  bool operator==(const SetLearningRate&) const = default;
};

// The time of the next steps, by phase.
struct Profile {
  static constexpr uint64_t kMaxSteps = 1000;       // a step leaves about a dozen spans in memory
  static constexpr uint64_t kMaxKernelSteps = 100;  // with kernels: thousands

  uint64_t steps = 0;
  bool kernels = false;  // LibTorch's own profile as well

  Status validate() const;
  bool operator==(const Profile&) const = default;
};

// Statistics of tensors whose names match, at steps that are multiples of `every`.
struct OpenInspection {
  static constexpr size_t kMaxGlobBytes = 256;
  static constexpr uint64_t kMaxEvery = 1'000'000'000;
  static constexpr size_t kMaxTensors = 256;    // that one inspection looks at
  static constexpr size_t kMaxHistograms = 64;  // the same with histograms

  std::string glob;
  uint64_t every = 1;
  uint64_t steps = 0;  // so many records, then it ends; 0: until nobody reads it
  bool parameters = true;
  bool gradients = true;
  bool activations = true;
  bool histograms = false;

  Status validate() const;
  bool operator==(const OpenInspection&) const = default;
};

using Command =
    std::variant<Pause, Resume, SaveCheckpoint, Stop, SetLearningRate, Profile, OpenInspection>;

// ---- Answered by the control server at once

struct Hello {
  bool operator==(const Hello&) const = default;
};

struct Help {
  bool operator==(const Help&) const = default;
};

struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};

// Makes the client's process a producer of the ring.
struct Attach {
  bool operator==(const Attach&) const = default;
};

struct ReadInspection {
  uint64_t inspection = 0;
  uint64_t after = 0;  // number of the last record that was read

  bool operator==(const ReadInspection&) const = default;
};

struct CloseInspection {
  uint64_t inspection = 0;

  bool operator==(const CloseInspection&) const = default;
};

using Call = std::variant<Hello, Help, GetStatus, Attach, ReadInspection, CloseInspection, Command>;

}  // namespace stoker::control
