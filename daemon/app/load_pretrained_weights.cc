#include "daemon/app/load_pretrained_weights.h"

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::app {
namespace {

// Failure to write the report does not prevent training.
bool write_report(const model::StateDictMapping& mapping, const std::string& path,
                  const run::RunLayout& layout) {
  Status status = make_directories(default_file_system(), layout.logs_dir());
  if (status.ok())
    status = write_file_atomically(default_file_system(), layout.pretrained_load_report(),
                                   "model.pretrained.path " + path + "\n" + mapping.report());
  if (!status.ok()) log_warn("pretrained load report not written", {{"error", status.message()}});
  return status.ok();
}

}  // namespace

Status load_pretrained_weights(train::TrainingState& state, const config::ModelConfig& config,
                               const run::RunLayout& layout) {
  if (!config.pretrained) return {};
  const std::string& path = config.pretrained->path;
  model::StateDictMapping mapping;
  const Status status = state.load_pretrained(*config.pretrained, mapping);
  if (!status.ok() && status.code() != StatusCode::kMismatch) return status;
  const bool written = write_report(mapping, path, layout);
  if (!status.ok())
    return Status(
        status.code(),
        status.message() + (written ? "; all names: " + layout.pretrained_load_report() : ""));
  log_info("pretrained weights loaded", {{"path", path},
                                         {"loaded", mapping.loaded.size()},
                                         {"unexpected", mapping.unexpected.size()},
                                         {"missing", mapping.missing.size()},
                                         {"report", layout.pretrained_load_report()}});
  return {};
}

}  // namespace stoker::app
