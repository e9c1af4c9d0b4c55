#include "daemon/daemon_app/first_weights.h"

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::daemon_app {
namespace {

// A report that cannot be written is no reason not to train.
bool write_report(const model::InitPlan& plan, const std::string& path,
                  const run::RunLayout& layout) {
  Status status = make_directories(real_files(), layout.logs());
  if (status.ok())
    status = write_file_atomically(real_files(), layout.init_report(),
                                   "model.pretrained.path " + path + "\n" + plan.report());
  if (!status.ok()) log_warn("pretrained load report not written", {{"error", status.message()}});
  return status.ok();
}

}  // namespace

Status begin_with_weights(train::TrainingState& state, const config::ModelConfig& config,
                          const run::RunLayout& layout) {
  if (!config.pretrained) return {};
  const std::string& path = config.pretrained->path;
  model::InitPlan plan;
  const Status status = state.load_pretrained(*config.pretrained, plan);
  if (!status.ok() && status.code() != Code::kMismatch) return status;
  const bool written = write_report(plan, path, layout);
  if (!status.ok())
    return Status(status.code(),
                  status.message() + (written ? "; all names: " + layout.init_report() : ""));
  log_info("pretrained weights loaded", {{"path", path},
                                         {"loaded", plan.loaded.size()},
                                         {"unexpected", plan.skipped.size()},
                                         {"missing", plan.fresh.size()},
                                         {"report", layout.init_report()}});
  return {};
}

}  // namespace stoker::daemon_app
