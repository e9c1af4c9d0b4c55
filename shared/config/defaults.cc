#include "shared/config/defaults.h"

#include <vector>

namespace stoker::config {
namespace {

// torchvision's, where it has the model.
void model_defaults(const GivenKeys& given, ModelConfig& model) {
  const auto set = [&given](const char* key, auto& field, auto value) {
    if (!given.contains(key)) field = value;
  };
  if (model.kind == ModelKind::kVit) {
    set("model.layers", model.layers, 12);
    set("model.heads", model.heads, 12);
    set("model.width", model.width, 768);
  }
  const bool has_wide_head = model.kind == ModelKind::kAlexnet || model.kind == ModelKind::kVgg;
  if (model.kind == ModelKind::kResnet) set("model.layers", model.layers, 18);
  if (model.kind == ModelKind::kVgg) set("model.layers", model.layers, 16);
  const bool is_recurrent = model.kind == ModelKind::kBlstm || model.kind == ModelKind::kLstm;
  if (is_recurrent) set("model.layers", model.layers, 1);
  if (has_wide_head) set("model.width", model.width, 4096);
  if (has_wide_head || model.kind == ModelKind::kInceptionV3)
    set("model.dropout", model.dropout, 0.5);
}

// An answer for each step needs the state of each.
void states_default(const GivenKeys& given, const TaskConfig& task, ModelConfig& model) {
  if (model.kind == ModelKind::kBlstm && task.labels_steps() && !given.contains("model.states"))
    model.states = "each";
}

void optimizer_defaults(const GivenKeys& given, OptimizerConfig& optimizer) {
  const bool is_muon = optimizer.kind == OptimizerKind::kMuon;
  const bool is_adam =
      optimizer.kind == OptimizerKind::kAdam || optimizer.kind == OptimizerKind::kAdamW;
  const auto set = [&given](const char* key, auto& field, auto value) {
    if (!given.contains(key)) field = value;
  };
  const bool is_lion = optimizer.kind == OptimizerKind::kLion;
  // Each optimizer's usual rate, as in PyTorch's examples; a coupled decay is seldom wanted unasked.
  if (!is_adam && !is_muon) set("optimizer.lr", optimizer.lr, is_lion ? 1e-4 : 0.01);
  if (optimizer.kind != OptimizerKind::kAdamW && !is_muon)
    set("optimizer.weight_decay", optimizer.weight_decay, 0.0);
  // PyTorch's and the paper's.
  if (is_lion) set("optimizer.betas", optimizer.betas, std::vector<double>{0.9, 0.99});
  if (optimizer.kind == OptimizerKind::kAdagrad) set("optimizer.eps", optimizer.eps, 1e-10);
  if (optimizer.kind == OptimizerKind::kRmsprop) set("optimizer.momentum", optimizer.momentum, 0.0);
  if (is_muon) set("optimizer.momentum", optimizer.momentum, 0.95);
  if (is_muon) set("optimizer.nesterov", optimizer.nesterov, true);
}

void schedule_defaults(const GivenKeys& given, const OptimizerConfig& optimizer,
                       ScheduleConfig& schedule) {
  const bool has_end =
      schedule.kind == ScheduleKind::kCosine || schedule.kind == ScheduleKind::kLinear;
  const bool is_default_rate = optimizer.lr == OptimizerConfig{}.lr;
  if (has_end && !is_default_rate && !given.contains("schedule.min_lr"))
    schedule.min_lr = optimizer.lr / 10;
}

}  // namespace

void apply_dependent_defaults(const GivenKeys& given, Config& config) {
  model_defaults(given, config.model);
  states_default(given, config.task, config.model);
  optimizer_defaults(given, config.optimizer);
  schedule_defaults(given, config.optimizer, config.schedule);
  if (!given.contains("eval.sets") && !config.data.contains("valid")) config.eval.sets.clear();
  for (auto& [name, set] : config.data) {
    if (set.is_sequence() && !set.is_padded() && set.context == 0)
      set.context = config.model.context;
  }
}

}  // namespace stoker::config
