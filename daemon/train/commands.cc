#include "daemon/train/commands.h"

#include <utility>
#include <variant>

#include <boost/json.hpp>

#include "daemon/train/released_pause.h"
#include "shared/base/log.h"
#include "shared/config/config_warnings.h"

namespace stoker::train {
namespace {

// These belong to the ring and its workers, which only a new segment can have.
constexpr std::string_view kNumWorkers = "feed.num_workers";
constexpr std::string_view kMaxSteps = "train.max_steps";
constexpr std::string_view kMaxEpochs = "train.max_epochs";

using config::ConfigWarning;

boost::json::array to_json(const std::vector<ConfigWarning>& warnings) {
  boost::json::array texts;
  for (const ConfigWarning& warning : warnings) texts.emplace_back(warning.text());
  return texts;
}

void log_warnings(const std::vector<ConfigWarning>& warnings) {
  for (const ConfigWarning& warning : warnings)
    log_warn("settings contradictory", {{"key", warning.key}, {"reason", warning.message}});
}

}  // namespace

Commands::Commands(Targets targets, bool has_device_memory, OnSettingChange on_setting_change)
    : configured_(targets.configured),
      config_(targets.config),
      state_(targets.state),
      channels_(targets.channels),
      writer_(targets.writer),
      ranks_(targets.ranks),
      checkpointing_(targets.checkpointing),
      instrumentation_(targets.instrumentation),
      reporter_(targets.reporter),
      has_device_memory_(has_device_memory),
      on_setting_change_(std::move(on_setting_change)),
      last_step_(config_.train.max_steps) {}

void Commands::execute_pending() {
  for (const Request& request : channels_.mailbox.take()) {
    if (const Status possible = check(request.command); !possible.ok())
      answer(request.done, possible);
    else if (!ranks_.defer(request))
      execute(request);
  }
}

Status Commands::check(const control::Command& command) const {
  STOKER_RETURN_IF_ERROR(ranks_.check(command));
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

void Commands::execute(const std::vector<Request>& agreed) {
  for (const Request& request : agreed) execute(request);
}

void Commands::execute(const Request& request) {
  std::visit([&](const auto& command) { execute(command, request); }, request.command);
}

void Commands::put_back() {
  auto deferred = ranks_.take_deferred();
  if (!deferred.empty()) channels_.mailbox.put_back(std::move(deferred));
}

void Commands::end(const Status& failure) {
  const Status ended = training_ended(failure);
  if (failure.ok())
    instrumentation_.finish("training ended");
  else
    instrumentation_.abandon("training ended", ended);
  checkpointing_.reject_requests(ended);
  reject_release(ended);
  for (const Request& request : ranks_.take_deferred()) answer(request.done, ended);
  channels_.mailbox.close(ended);
}

void Commands::reject_release(const Status& why) {
  for (const Done& done : std::exchange(channels_.release_requests, {})) answer(done, why);
}

// ---- Pause, stop, save, observe

void Commands::execute(const control::Pause& pause, const Request& request) {
  channels_.is_paused = true;
  reporter_.publish();  // before the answer, which a request for the status can follow
  if (!pause.release) return answer_at_step(request.done, state_.step, {{"state", "paused"}});
  if (!has_device_memory_) return answer_unreleased(request.done, state_.step, kNoDeviceMemory);
  if (state_.step == 0)
    return answer_unreleased(request.done, state_.step,
                             "the run has no step that it could continue from");
  channels_.release_requests.push_back(request.done);
}

void Commands::execute(const control::Resume&, const Request& request) {
  channels_.is_paused = false;
  reporter_.publish();
  answer_at_step(request.done, state_.step, {{"state", "training"}});
}

void Commands::execute(const control::SaveCheckpoint&, const Request& request) {
  checkpointing_.request(request.done, request.on_progress);
}

void Commands::execute(const control::Stop& stop, const Request& request) {
  stop_requested_ = true;
  if (stop.is_preemption) is_preempted_ = true;
  answer_at_step(request.done, state_.step, {{"state", "stopping"}});
}

void Commands::execute(const control::Profile& profile, const Request& request) {
  instrumentation_.profile(profile, request.done, request.on_progress);
}

void Commands::execute(const control::OpenInspection& open, const Request& request) {
  instrumentation_.open_inspection(open, state_.step, request.done);
}

// ---- Live settings

void Commands::execute(const control::SetSetting& set, const Request& request) {
  change_settings(set.key, config::set_live(configured_, state_.settings, set.key, set.value),
                  set.dry_run, request.done);
}

void Commands::execute(const control::UnsetSetting& unset, const Request& request) {
  change_settings(unset.key, config::unset_live(configured_, state_.settings, unset.key),
                  unset.dry_run, request.done);
}

void Commands::change_settings(const std::string& key, Result<config::LiveConfig> changed,
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
  const double lr = learning_rate(changed->config, state_);
  const auto warnings = config::new_config_warnings(config_, changed->config);
  if (!is_dry_run) apply_settings(*std::move(changed), change);
  if (!is_dry_run) log_warnings(warnings);
  boost::json::object reply{
      {"key", key}, {"value", config::to_json_value(change.current)}, {"lr", lr}};
  if (is_dry_run) reply["dry_run"] = true;
  if (!warnings.empty()) reply["warnings"] = to_json(warnings);
  answer_at_step(done, state_.step, reply);
}

Status Commands::reduce_learning_rate() {
  const std::string key = config::kNumReductionsKey;
  const auto& plateau = std::get<config::ReduceOnPlateauScheduler>(config_.scheduler.schedule);
  const config::SettingChange change{.key = key,
                                     .previous = std::to_string(plateau.num_reductions),
                                     .current = std::to_string(plateau.num_reductions + 1)};
  STOKER_ASSIGN_OR_RETURN(config::LiveConfig changed,
                          config::set_live(configured_, state_.settings, key, change.current));
  apply_settings(std::move(changed), change);
  return {};
}

void Commands::apply_settings(config::LiveConfig changed, const config::SettingChange& change) {
  const bool changes_workers = changed.config.feed.num_workers != config_.feed.num_workers;
  if (changes_workers || changed.config.train.max_steps > last_step_) segment_key_ = change.key;
  state_.settings = std::move(changed.live);
  config_ = std::move(changed.config);
  reporter_.publish_settings();
  log_info("live setting changed", {{"step", state_.step},
                                    {"key", change.key},
                                    {"previous", change.previous},
                                    {"current", change.current},
                                    {"lr", learning_rate(config_, state_)}});
  if (on_setting_change_) on_setting_change_(state_.step, config_, change);
}

}  // namespace stoker::train
