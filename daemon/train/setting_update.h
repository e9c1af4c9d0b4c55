// SettingUpdate: a live setting that `set` or `unset` changes: checked when it is made, then applied to the state and the
// configuration in effect.
//
// Threads: the trainer thread only.
// Errors:  make(): kInvalidArgument, with the key and what to do.
#pragma once

#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/config_warnings.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/control/command.h"

namespace stoker::train {

class SettingUpdate {
 public:
  // `config`: in effect. `command`: with control::changed_setting().
  static Result<SettingUpdate> make(const config::Config& configured, const config::Config& config,
                                    const TrainingState& state, const control::Command& command);

  bool is_dry_run() const { return is_dry_run_; }
  const config::SettingChange& change() const { return change_; }
  const config::LiveConfig& changed() const { return changed_; }  // what apply() sets
  boost::json::object reply() const;
  // Logs it. Call once, at last.
  void apply(config::Config& config, TrainingState& state);

 private:
  config::LiveConfig changed_;
  config::SettingChange change_;
  std::vector<config::ConfigWarning> warnings_;
  double lr_ = 0;  // of the next step
  bool is_dry_run_ = false;
};

}  // namespace stoker::train
