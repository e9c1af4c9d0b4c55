// Command: a client's request to the trainer, parsed once from a line of the control socket
// (protocol.h) and passed unchanged to the trainer's mailbox. Call: a Command, or a request that
// the control server answers itself.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "shared/base/status.h"

namespace stoker::control {

inline constexpr uint64_t kProtocolVersion = 2;

// ---- Executed by the trainer between two steps

struct Pause {
  bool release = false;  // release the memory of the device until training resumes

  bool operator==(const Pause&) const = default;
};

struct Resume {
  bool operator==(const Resume&) const = default;
};

struct SaveCheckpoint {
  bool wait = true;  // reply when it is durable, not when the job is started

  bool operator==(const SaveCheckpoint&) const = default;
};

struct Stop {
  bool is_preemption =
      false;  // by SIGTERM of a launcher that starts the run again; not from clients

  bool operator==(const Stop&) const = default;
};

// Sets a setting of the configuration to another value while the run trains.
struct SetSetting {
  static constexpr size_t kMaxKeyBytes = 256;
  static constexpr size_t kMaxValueBytes = 256;

  std::string key;       // "optimizer.lr"
  std::string value;     // as YAML
  bool dry_run = false;  // only reply what would be in effect

  bool operator==(const SetSetting&) const = default;
};

// Restores the value of the configuration.
struct UnsetSetting {
  std::string key;
  bool dry_run = false;

  bool operator==(const UnsetSetting&) const = default;
};

// Phase timings of the next steps.
struct Profile {
  static constexpr uint64_t kMaxSteps = 1000;       // a step adds about a dozen spans in memory
  static constexpr uint64_t kMaxKernelSteps = 100;  // with kernels: thousands

  uint64_t steps = 0;
  bool kernels = false;  // include LibTorch's profiler
  bool wait = true;      // reply when the trace is written, not when the job is started

  Status validate() const;
  bool operator==(const Profile&) const = default;
};

// Statistics of tensors with matching names, at steps that are multiples of `every`.
struct OpenInspection {
  static constexpr size_t kMaxGlobBytes = 256;
  static constexpr uint64_t kMaxEvery = 1'000'000'000;
  static constexpr size_t kMaxTensors = 256;    // per inspection
  static constexpr size_t kMaxHistograms = 64;  // the same with histograms
  static constexpr size_t kMaxFiles = 256;      // listed per record; a batch can have more

  std::string glob;
  uint64_t every = 1;
  uint64_t steps = 0;  // number of records until it ends; 0: until it is no longer read
  bool parameters = true;
  bool gradients = true;
  bool activations = true;
  bool inputs = false;  // the tensors of the step's first batch, its ticket and files
  bool histograms = false;

  Status validate() const;
  bool operator==(const OpenInspection&) const = default;
};

using Command = std::variant<Pause, Resume, SaveCheckpoint, Stop, SetSetting, UnsetSetting, Profile,
                             OpenInspection>;

// The key of the setting that it sets or unsets. Null: it changes none.
inline const std::string* changed_setting(const Command& command) {
  if (const auto* const set = std::get_if<SetSetting>(&command)) return &set->key;
  const auto* const unset = std::get_if<UnsetSetting>(&command);
  return unset != nullptr ? &unset->key : nullptr;
}

// Whether it only replies what it would do.
inline bool is_dry_run(const Command& command) {
  if (const auto* const set = std::get_if<SetSetting>(&command)) return set->dry_run;
  const auto* const unset = std::get_if<UnsetSetting>(&command);
  return unset != nullptr && unset->dry_run;
}

// ---- Answered immediately by the control server

struct Hello {
  uint64_t protocol_version = kProtocolVersion;  // that the client speaks

  Status validate() const;
  bool operator==(const Hello&) const = default;
};

struct Help {
  bool operator==(const Help&) const = default;
};

struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};

struct GetThreads {
  bool operator==(const GetThreads&) const = default;
};

// The settings that can change while the run trains, or those at and below a key.
struct GetSettings {
  std::string key;  // "train.max_steps", "model"; empty: those that can change

  bool operator==(const GetSettings&) const = default;
};

// Sends events of the log and the status to the client, until it closes the connection or subscribes
// again.
struct Subscribe {
  static constexpr size_t kMaxPatternBytes = 256;
  static constexpr uint64_t kMaxStatusSeconds = 3600;

  std::string events = "*";     // pattern of event names; empty: none
  uint64_t status_seconds = 0;  // interval of the status; 0: none

  bool operator==(const Subscribe&) const = default;
};

// Reads the configuration file again, as SIGHUP does.
struct Reload {
  bool dry_run = false;  // only reply what would change

  bool operator==(const Reload&) const = default;
};

// Attaches the client's process to the ring as a producer.
struct Attach {
  bool operator==(const Attach&) const = default;
};

struct ReadInspection {
  uint64_t inspection = 0;
  uint64_t after = 0;  // number of the last record that the client has read

  bool operator==(const ReadInspection&) const = default;
};

struct CloseInspection {
  uint64_t inspection = 0;

  bool operator==(const CloseInspection&) const = default;
};

// ---- Executed by the control server on a thread for files of the run directory

// Asks the evaluator to evaluate a checkpoint, even if it was evaluated before.
struct Evaluate {
  uint64_t step = 0;

  bool operator==(const Evaluate&) const = default;
};

// The last lines of a log.
struct ReadLogs {
  static constexpr uint64_t kMaxLines = 10'000;
  static constexpr uint64_t kMaxBytes = 256 << 10;  // fewer lines if they are longer

  uint64_t lines = 20;
  bool evaluator = false;
  uint64_t rank = 0;

  bool operator==(const ReadLogs&) const = default;
};

// The samples of a step, from a sample of it on.
struct ShowBatch {
  static constexpr uint64_t kMaxSamples = 1000;   // per reply; the next request continues
  static constexpr size_t kMaxBytes = 256 << 10;  // fewer samples if they need more

  uint64_t step = 1;
  uint64_t first_sample = 0;

  bool operator==(const ShowBatch&) const = default;
};

using FileRequest = std::variant<Evaluate, ReadLogs, ShowBatch>;

using Call = std::variant<Hello, Help, GetStatus, GetThreads, GetSettings, Subscribe, Reload,
                          Attach, ReadInspection, CloseInspection, FileRequest, Command>;

}  // namespace stoker::control
