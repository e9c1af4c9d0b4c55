#include "daemon/train/commands.h"

#include <utility>
#include <variant>

#include <boost/json.hpp>

#include "daemon/train/released_pause.h"

namespace stoker::train {
namespace {

// These belong to the ring and its workers, which only a new segment can have.
constexpr std::string_view kNumWorkers = "feed.num_workers";
constexpr std::string_view kMaxSteps = "train.max_steps";
constexpr std::string_view kMaxEpochs = "train.max_epochs";

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

void Commands::execute(const control::SetSetting&, const Request& request) {
  change_setting(request);
}

void Commands::execute(const control::UnsetSetting&, const Request& request) {
  change_setting(request);
}

void Commands::change_setting(const Request& request) {
  auto update = SettingUpdate::make(configured_, config_, state_, request.command);
  if (!update.ok()) return answer(request.done, update.status());
  const boost::json::object reply = update->reply();
  if (!update->is_dry_run()) apply(*update);
  answer_at_step(request.done, state_.step, reply);
}

Status Commands::reduce_learning_rate() {
  const auto& plateau = std::get<config::ReduceOnPlateauScheduler>(config_.scheduler.schedule);
  const control::SetSetting reduced{.key = std::string(config::kNumReductionsKey),
                                    .value = std::to_string(plateau.num_reductions + 1)};
  STOKER_ASSIGN_OR_RETURN(SettingUpdate update,
                          SettingUpdate::make(configured_, config_, state_, reduced));
  apply(update);
  return {};
}

void Commands::apply(SettingUpdate& update) {
  const config::Config& changed = update.changed().config;
  const bool changes_workers = changed.feed.num_workers != config_.feed.num_workers;
  if (changes_workers || changed.train.max_steps > last_step_) segment_key_ = update.change().key;
  update.apply(config_, state_);
  reporter_.publish_settings();
  if (on_setting_change_) on_setting_change_(state_.step, config_, update.change());
}

}  // namespace stoker::train
