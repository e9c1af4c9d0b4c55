// ResumeCompatibility: how a resumed run differs from the run that saved its checkpoint, and whether it
// may be resumed nevertheless.
//
// Changes that make it another run are rejected with the first differences, unless the command line
// allows that kind of change. Each kind waives a guarantee.
//
// Threads: values.
// Errors:  check(): kMismatch, with the differences, the flag that allows them, and what it waives.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/config.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

enum class ChangeKind { kModel, kData, kBatch, kWorldSize };
inline constexpr size_t kChanges = 4;

std::string_view allow_flag(ChangeKind change);  // "--allow-model-change"

// The kinds of changes that the command line allows.
class AllowedChanges {
 public:
  bool& operator[](ChangeKind change) { return allowed_[static_cast<size_t>(change)]; }
  bool operator[](ChangeKind change) const { return allowed_[static_cast<size_t>(change)]; }

 private:
  std::array<bool, kChanges> allowed_{};
};

class ResumeCompatibility {
 public:
  void add(ChangeKind change, std::string difference);
  // By the settings of the run so far; those that do not make it another run are logged, if `logs`.
  void add_config(const config::Config& before, const config::Config& now, bool logs = true);
  // By what the checkpoint says itself.
  void add_manifest(const checkpoint::Manifest& saved, const checkpoint::Manifest& now);
  void add_schema(const DatasetSchema& saved, const DatasetSchema& now);
  // By the model as it is made now: once its tensors have been compared, whose names say more.
  void add_model(const checkpoint::Manifest& saved, const checkpoint::Manifest& now);

  bool has(ChangeKind change) const { return !differences_[static_cast<size_t>(change)].empty(); }
  bool any() const;
  // kMismatch. model.lora can be neither added nor removed, whatever is allowed: the weights in the
  // checkpoint are others.
  Status check(const AllowedChanges& allowed) const;
  // Logs what is lost with the changes there are.
  void log_waived_guarantees() const;

 private:
  std::array<std::vector<std::string>, kChanges> differences_;
  bool adapter_changed_ = false;  // the checkpoint has an adapter and the run none, or vice versa
};

// What a resume of the run in this directory would be rejected for by its configuration alone. Ok: nothing, or
// there is no run that has saved.
Status check_resumed_config(const run::RunLayout& layout, const config::Config& now,
                            const AllowedChanges& allowed);

// The ticket at which a run resumes that was at `ticket` with batches of `before` samples, and now has
// batches of `now`. No sample is skipped; up to one batch of them is repeated.
uint64_t ticket_at(uint64_t ticket, uint64_t before, uint64_t now);

}  // namespace stoker::app
