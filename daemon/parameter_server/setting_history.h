// SettingHistory: the live settings of a run with parameter servers, each version from a step on.
//
// The chief makes a version while the servers hold the state of a step: it leaves the version in the store, then tells
// server 0, with which it is decided. All replies of server 0 that name a step have the number of the newest version. A
// worker that does not know it yet tells the other servers, before it asks them for anything of this step. So all servers
// make each update with the same settings, whenever a task is lost.
//
// Threads: none; the owner serializes the calls.
// Errors:  parse_settings_version(): kInternal. add(): those of config::with_live_settings().
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "daemon/train/live_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/load_config.h"

namespace stoker::parameter_server {

struct SettingsVersion {
  uint64_t step = 0;      // the first update with it is the one from this step to the next one
  train::LiveState live;  // settings and lr_scale
  config::SettingChange
      change;  // to the version before; without a key: of a start from a checkpoint
};

std::string to_json(const SettingsVersion& version);
Result<SettingsVersion> parse_settings_version(const std::string& text);
// In the store; the first version is 1.
std::string settings_key(uint64_t version);

class SettingHistory {
 public:
  // As configured, until the first version.
  explicit SettingHistory(config::Config configured) : configured_(std::move(configured)) {
    entries_.push_back({.config = configured_});
  }
  // Steps do not decrease.
  Status add(const SettingsVersion& version);

  const config::Config& newest() const { return entries_.back().config; }
  // Of the update from `step` to the next one.
  double learning_rate(uint64_t step) const;
  // Whether a metrics record ends with this step.
  bool is_recorded(uint64_t step) const;

 private:
  struct Entry {
    uint64_t step = 0;
    config::Config config;
    double lr_scale = 1;
  };
  const Entry& at(uint64_t step) const;

  const config::Config configured_;
  std::deque<Entry> entries_;
};

}  // namespace stoker::parameter_server
