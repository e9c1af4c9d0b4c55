#include "daemon/app/pretrained_weights.h"

#include <set>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/config/foreign_json.h"
#include "shared/config/image_model_config.h"
#include "shared/model/lora.h"
#include "shared/pretrained/state_dict_mapping.h"

namespace stoker::app {
namespace {

// Failure to write the load report does not prevent training.
bool write_load_report(const pretrained::StateDictMapping& mapping, const std::string& path,
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
  pretrained::StateDictMapping mapping;
  const Status status = state.load_pretrained(config, mapping);
  if (!status.ok() && status.code() != StatusCode::kMismatch) return status;
  const bool written = write_load_report(mapping, path, layout);
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

Status warn_of_other_normalization(const config::Config& config) {
  if (!config.model.pretrained || !config::is_image_model(config.model.arch)) return {};
  const std::string& path = config.model.pretrained->path;
  const auto theirs = config::read_normalization(path);
  if (!theirs.ok()) return theirs.status().with_context("model.pretrained.path");
  if (!*theirs || config::is_same_normalization(config::training_normalization(config), **theirs))
    return {};
  const auto list = [](const std::vector<double>& numbers) {
    std::string text;
    for (const double number : numbers)
      text += (text.empty() ? "" : ", ") + config::setting_text(number);
    return "[" + text + "]";
  };
  log_warn("pretrained normalization differs",
           {{"path", path},
            {"mean", list((*theirs)->mean)},
            {"std", list((*theirs)->std)},
            {"hint", "set the normalize transform of data.train to these"}});
  return {};
}

void record_base_weights(const config::ModelConfig& config, const model::Model& model,
                         checkpoint::Manifest& manifest) {
  if (!config.lora) return;
  const std::set<std::string>& tensors = model.adapter()->base;
  const auto& base = manifest.base_weights.emplace(
      checkpoint::BaseWeights{.path = config.pretrained->path,
                              .sha256 = model::base_digest(model),
                              .tensors = {tensors.begin(), tensors.end()},
                              .r = config.lora->r,
                              .lora_alpha = config.lora->lora_alpha});
  log_info("base weights loaded", {{"path", base.path}, {"sha256", base.sha256}});
}

}  // namespace stoker::app
