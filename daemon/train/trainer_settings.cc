// The part of Trainer that changes live settings.
#include <utility>

#include <boost/json.hpp>

#include "daemon/train/trainer.h"
#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/config/config_warnings.h"

namespace stoker::train {
namespace {

// These belong to the ring and its workers, which only a new segment can have.
constexpr std::string_view kNumWorkers = "feed.num_workers";
constexpr std::string_view kMaxSteps = "train.max_steps";
constexpr std::string_view kMaxEpochs = "train.max_epochs";

using config::ConfigWarning;

// A field of an answer; empty: no warnings.
std::string warnings_field(const std::vector<ConfigWarning>& warnings) {
  if (warnings.empty()) return {};
  boost::json::array texts;
  for (const ConfigWarning& warning : warnings) texts.emplace_back(warning.text());
  return ",\"warnings\":" + boost::json::serialize(texts);
}

void log_warnings(const std::vector<ConfigWarning>& warnings) {
  for (const ConfigWarning& warning : warnings)
    log_warn("settings contradictory", {{"key", warning.key}, {"reason", warning.message}});
}

}  // namespace

Status Trainer::check_command(const control::Command& command) const {
  STOKER_RETURN_IF_ERROR(ranks_->check(command));
  const std::string* const key = control::changed_setting(command);
  const bool needs_segment =
      key != nullptr && (*key == kNumWorkers || *key == kMaxSteps || *key == kMaxEpochs);
  if (!needs_segment || !writer_.is_degraded()) return {};
  return Status(StatusCode::kBusy,
                *key +
                    ": training continues from a checkpoint with the new value, and "
                    "checkpoints cannot be written: " +
                    writer_.stats().last_error);
}

void Trainer::execute(const control::SetSetting& command, const Done& done) {
  change_settings(command.key,
                  config::set_live(configured_, state_.settings, command.key, command.value),
                  command.dry_run, done);
}

void Trainer::execute(const control::UnsetSetting& command, const Done& done) {
  change_settings(command.key, config::unset_live(configured_, state_.settings, command.key),
                  command.dry_run, done);
}

void Trainer::change_settings(const std::string& key, Result<config::LiveConfig> changed,
                              bool is_dry_run, const Done& done) {
  if (!changed.ok()) return answer(done, changed.status());
  const uint64_t max_steps = changed->config.train.max_steps;
  if (max_steps <= state_.step)
    return answer(
        done, Status(StatusCode::kInvalidArgument,
                     key + ": " + std::to_string(max_steps) + " is not above the current step " +
                         std::to_string(state_.step) + "; `stop` ends the run"));
  const config::SettingChange change{.key = key,
                                     .previous = *config::value_of(config_, key),
                                     .current = *config::value_of(changed->config, key)};
  const double lr = learning_rate_of(changed->config);
  const auto warnings = config::new_config_warnings(config_, changed->config);
  if (!is_dry_run) apply_settings(*std::move(changed), change);
  if (!is_dry_run) log_warnings(warnings);
  answer_at_step(done, state_.step,
                 "\"key\":\"" + key + "\",\"value\":" + config::to_json_value(change.current) +
                     ",\"lr\":" + format_exact(lr) + (is_dry_run ? ",\"dry_run\":true" : "") +
                     warnings_field(warnings));
}

void Trainer::apply_settings(config::LiveConfig changed, const config::SettingChange& change) {
  const bool changes_workers = changed.config.feed.num_workers != config_.feed.num_workers;
  if (changes_workers || changed.config.train.max_steps > last_step_) segment_key_ = change.key;
  state_.settings = std::move(changed.live);
  config_ = std::move(changed.config);
  publish_settings();
  status_.lr = learning_rate_of(config_);
  publish(activity());
  log_info("live setting changed", {{"step", state_.step},
                                    {"key", change.key},
                                    {"previous", change.previous},
                                    {"current", change.current},
                                    {"lr", status_.lr}});
  if (on_setting_change_) on_setting_change_(state_.step, config_, change);
}

// At step 0 there is no state to save, from which producers that cannot send again would continue.
Result<bool> Trainer::save_for_new_settings() {
  if (segment_key_.empty() || state_.step == 0) return false;
  // Ranks do not know whether the others have saved, and the ring ends at the last step.
  const bool must_save = ranks_->shares_steps() || state_.step >= last_step_;
  if (!must_save && writer_.is_degraded()) return false;
  Result<bool> saved = save_for_next_segment("new settings");
  if (saved.ok() || must_save || !writer_.is_degraded()) return saved;
  STOKER_RETURN_IF_ERROR(checkpointing_.check());
  log_warn("setting change deferred",
           {{"key", segment_key_}, {"effective", "after the next checkpoint"}});
  publish(control::TrainerState::kTraining);
  return false;
}

void Trainer::publish_settings() {
  status_.max_steps = config_.train.max_steps;
  status_.live_settings.clear();
  for (const config::LiveSetting& setting : state_.settings)
    status_.live_settings.emplace_back(setting.key, setting.value);
}

}  // namespace stoker::train
