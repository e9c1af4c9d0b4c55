// TrainerPhase: what the trainer does at a moment. Each phase has its timeout: the settings of
// `watchdog`.
#pragma once

#include <string_view>

namespace stoker::control {

enum class TrainerPhase {
  kUnwatched,   // may take any time: training is paused
  kStart,       // prepares training, or ends it
  kStep,        // computes
  kData,        // waits for a batch
  kCheckpoint,  // copies the state for a checkpoint
};

constexpr std::string_view to_string(TrainerPhase phase) {
  switch (phase) {
    case TrainerPhase::kUnwatched:
      return "unwatched";
    case TrainerPhase::kStart:
      return "start";
    case TrainerPhase::kStep:
      return "step";
    case TrainerPhase::kData:
      return "data";
    case TrainerPhase::kCheckpoint:
      return "checkpoint";
  }
  return "unknown";
}

}  // namespace stoker::control
