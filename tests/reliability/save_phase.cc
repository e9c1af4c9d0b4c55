#include "tests/reliability/save_phase.h"

namespace stoker::test {

SavePhase SavePhaseWatch::at(const FileCall& call) {
  const auto is_in = [&](const char* part) { return call.path.find(part) != std::string::npos; };
  const bool is_hidden = is_in("/.tmp-step-");
  if (is_hidden && call.name.starts_with("mkdir")) next_ = SavePhase::kTensors;
  if (is_hidden && next_ == SavePhase::kTensors && is_in("/manifest.json"))
    next_ = SavePhase::kManifest;
  if (is_hidden && next_ == SavePhase::kManifest && is_in("/SHA256SUMS")) next_ = SavePhase::kSums;
  const SavePhase phase = next_;
  if (is_hidden && call.name.starts_with("rename")) next_ = SavePhase::kRenamed;
  if (phase == SavePhase::kRenamed && call.name == "fsync" && call.path.ends_with("/checkpoints"))
    next_ = SavePhase::kRetention;
  return phase;
}

}  // namespace stoker::test
