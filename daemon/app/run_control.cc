// The parts of Run for other threads: control server, watchdog, DaemonApp.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "daemon/app/run.h"
#include "daemon/app/run_segment.h"
#include "daemon/group/recorded_group.h"
#include "shared/base/utf8.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"

namespace stoker::app {
namespace {

const char* origin_of(const CommandLine& command, const std::string& key) {
  if (key == "run.dir" && !command.run_dir.empty()) return "--run-dir";
  const auto found = command.origins.find(key);
  if (found == command.origins.end()) return "default";
  return found->second == config::SettingOrigin::kOverride ? "--set" : "file";
}

}  // namespace

std::optional<uint64_t> Run::group_exchanges() const {
  // With that, the group has been opened.
  if (!channels_.expects_exchange || group_->is_leaving()) return std::nullopt;
  if (channels_.group_exchanges.load(std::memory_order_relaxed) == 0) return 0;
  // Also the start of an exchange: the others have the whole timeout from then on.
  return maybe_recorder_->num_events();
}

std::string Run::lost_ranks() const {
  std::vector<std::string> reasons;
  for (int rank = 0; rank < group_->world_size(); ++rank) {
    const Status lost = group_->check_rank(rank);
    const bool is_new = reasons.empty() || reasons.back() != lost.message();
    if (!lost.ok() && is_new) reasons.push_back(lost.message());
  }
  return join(reasons, "; ");
}

std::string Run::record_flight(const std::string& reason) const {
  return maybe_recorder_ ? group::write_flight_record(*maybe_recorder_, reason) : "";
}

void Run::request_stop(bool is_preemption) {
  if (is_preemption) is_preempted_ = true;
  channels_.mailbox.post({control::Stop{.is_preemption = is_preemption}, {}, {}});
  stop_requested_ = true;
  preparation_stop_.request_stop();
}

bool Run::is_prepared() const {
  const std::lock_guard lock(mutex_);
  return segment_ != nullptr;
}

std::shared_ptr<const control::TrainerStatus> Run::status() const {
  auto status = std::make_shared<control::TrainerStatus>(*channels_.board.read());
  if (status->state != control::TrainerState::kStarting) status->step = step();
  {
    const std::lock_guard lock(mutex_);
    if (segment_) segment_->add_live(*status);
  }
  if (maybe_launch_ != nullptr) {
    status->group.world_size = maybe_launch_->environment.world_size;
    status->group.restart_count =
        static_cast<uint64_t>(std::max(0, maybe_launch_->environment.restart_count));
  }
  status->evaluator = evaluator_.read_cached();
  const ProcessUse now = measure_process();
  status->resources[Resource::kRss] = now.rss_bytes;
  status->resources[Resource::kPeakRss] = now.peak_rss_bytes;
  status->uptime_seconds = seconds_between(started_, clock_.monotonic());
  return status;
}

service::WatchedRun Run::watched() {
  service::WatchedRun now{.phase = channels_.board.phase(),
                          .progress = channels_.board.progress(),
                          .save_progress = std::nullopt,
                          .step = channels_.board.step()};
  // The ranks have timeouts for each other, the settings of `distributed`.
  if (maybe_launch_ != nullptr) now.phase = control::TrainerPhase::kUnwatched;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock)
    watched_save_ = segment_ ? segment_->save_progress() : std::nullopt;
  now.save_progress = watched_save_;
  return now;
}

ThreadList Run::threads() const {
  ThreadList list = list_threads();
  const std::lock_guard lock(mutex_);
  if (segment_)
    for (ThreadInfo& thread : segment_->stream_threads().threads)
      list.threads.push_back(std::move(thread));
  return list;
}

void Run::post(control::Command command, Done done, OnProgress on_progress) {
  // The trainer takes commands between steps; an index of hours would delay a stop.
  if (std::holds_alternative<control::Stop>(command) && on_stop_ && !is_prepared() &&
      !is_released_) {
    on_stop_();
    return train::answer_at_step(done, step(), {{"state", "stopping"}});
  }
  channels_.mailbox.post({std::move(command), std::move(done), std::move(on_progress)});
}

Result<std::string> Run::read_inspection(uint64_t inspection, uint64_t after) {
  return channels_.inspections.read(inspection, after);
}

Result<std::string> Run::peek_inspection(uint64_t inspection, uint64_t after) {
  return channels_.inspections.peek(inspection, after);
}

Status Run::close_inspection(uint64_t inspection) {
  return channels_.inspections.close(inspection);
}

Result<std::string> Run::settings(const std::string& key, bool with_secrets) const {
  const auto live = channels_.board.read()->live_settings;
  boost::json::array settings;
  for (const config::Setting& setting : config::all_settings(configured_)) {
    const bool is_selected =
        key.empty() ? setting.is_live : setting.key == key || setting.key.starts_with(key + ".");
    if (!is_selected) continue;
    const auto changed =
        std::ranges::find(live, setting.key, &std::pair<std::string, std::string>::first);
    boost::json::object& shown = settings.emplace_back(boost::json::object()).as_object();
    shown["key"] = setting.key;
    const std::string configured = with_secrets ? setting.value : setting.public_value();
    shown["value"] = config::to_json_value(changed == live.end() ? configured : changed->second);
    shown["origin"] = changed == live.end() ? origin_of(command_, setting.key) : "live";
    shown["can_change"] = setting.is_live;
    if (changed != live.end()) shown["configured"] = config::to_json_value(configured);
  }
  if (settings.empty()) return config::value_of(configured_, key).status();
  return boost::json::serialize(boost::json::object{{"settings", std::move(settings)}});
}

Result<server::AttachedRing> Run::attach(pid_t pid, UniqueFd pidfd) {
  const std::lock_guard lock(mutex_);
  if (is_released_)
    return Status(StatusCode::kBusy,
                  "training is paused without the memory of its device; `resume` first");
  if (!segment_)
    return Status(StatusCode::kBusy, "training is being prepared; try again when it has started");
  STOKER_ASSIGN_OR_RETURN(auto attachment,
                          segment_->attach({.pid = pid, .pidfd = std::move(pidfd)}));
  return server::AttachedRing{.answer = supervisor::to_json(attachment, configured_.feed),
                              .ring = std::move(attachment.ring)};
}

}  // namespace stoker::app
