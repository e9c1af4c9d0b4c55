// OptimizerConfig and ScheduleConfig: the settings under optimizer and schedule.
//
// Threads: values.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stoker::config {

enum class OptimizerKind { kSgd, kMomentum, kAdam, kAdamW, kRmsprop, kAdagrad, kLion, kMuon };

// Parameters with settings of their own.
struct ParameterGroup {
  std::string match;                   // glob of parameter names
  double lr_scale = 1.0;               // their learning rate is the schedule's times this
  std::optional<double> weight_decay;  // not given: optimizer.weight_decay

  bool operator==(const ParameterGroup&) const = default;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3.0e-4;  // when not given: 1e-4 for lion, 0.01 for those that are no adam
  // adam adamw lion muon, for what adamw does there; 0.9, 0.99 for lion when not given
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;  // adam adamw rmsprop adagrad muon; 1e-10 for adagrad when not given
  // momentum rmsprop muon; 0 for rmsprop, 0.95 for muon when not given
  double momentum = 0.9;
  double alpha = 0.99;    // rmsprop: decay of the mean square
  bool nesterov = false;  // momentum muon; true for muon when not given
  // muon: globs of names of matrices that are no hidden layers' weights: adamw updates them
  std::vector<std::string> adamw_for = {"tok.*", "pos.*", "head.*", "heads.*", "fc.*"};
  // adamw lion muon: decoupled; others: added to the gradient; 0 for all but adamw and muon when not
  // given
  double weight_decay = 0.1;
  double clip_norm = 1.0;              // global norm; 0 = off
  double clip_value = 0;               // of each element of the gradient, before clip_norm; 0 = off
  std::vector<ParameterGroup> groups;  // a parameter is of the first that matches, or of none

  bool operator==(const OptimizerConfig&) const = default;
};

enum class ScheduleKind { kConstant, kCosine, kLinear, kStep };
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  uint64_t warmup_steps = 100;  // linear from lr / warmup_steps
  double min_lr = 3.0e-5;       // cosine linear: where train.steps ends; lr / 10 when not given
  uint64_t every_steps = 1000;  // step: how often lr is multiplied by factor
  double factor = 0.1;          // step

  bool operator==(const ScheduleConfig&) const = default;
};

}  // namespace stoker::config
