#include "daemon/daemon_app/first_weights.h"

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::daemon_app {
namespace {

// A report that cannot be written is no reason not to train.
bool write_report(const model::InitPlan& plan, const std::string& init_from,
                  const run::RunLayout& layout) {
  Status status = make_directories(real_files(), layout.logs());
  if (status.ok())
    status = write_file_atomically(real_files(), layout.init_report(),
                                   "init_from " + init_from + "\n" + plan.report());
  if (!status.ok()) log_warn("pretrained load report not written", {{"error", status.message()}});
  return status.ok();
}

}  // namespace

Status begin_with_weights(train::TrainingState& state, const config::ModelConfig& config,
                          const run::RunLayout& layout) {
  if (config.init_from.empty()) return {};
  model::InitPlan plan;
  const Status status = state.load_pretrained(config, plan);
  if (!status.ok() && status.code() != Code::kMismatch) return status;
  const bool written = write_report(plan, config.init_from, layout);
  if (!status.ok())
    return Status(status.code(),
                  status.message() + (written ? "; all names: " + layout.init_report() : ""));
  log_info("pretrained weights loaded", {{"path", config.init_from},
                                         {"loaded", plan.loaded.size()},
                                         {"unexpected", plan.skipped.size()},
                                         {"missing", plan.fresh.size()},
                                         {"report", layout.init_report()}});
  return {};
}

}  // namespace stoker::daemon_app
