#include "daemon/train/released_pause.h"

#include <chrono>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "shared/base/log.h"
#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

constexpr std::chrono::milliseconds kReleasedPollInterval{100};
constexpr ThreadActivity kReleased{.operation = "wait for resume", .is_waiting = true};

void answer_released(const Done& done, uint64_t step, double reserved_bytes) {
  const auto bytes = static_cast<uint64_t>(std::isnan(reserved_bytes) ? 0 : reserved_bytes);
  answer_at_step(done, step,
                 {{"state", "paused"}, {"released", true}, {"device_reserved_bytes", bytes}});
}

// Returns true for `stop`.
bool answer_while_released(TrainerChannels& channels, const Request& request) {
  const uint64_t step = channels.board.step();
  return std::visit(
      [&](const auto& command) {
        using C = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<C, control::Resume>) {
          channels.is_paused = false;
          answer_at_step(request.done, step, {{"state", "training"}});
        } else if constexpr (std::is_same_v<C, control::Pause>) {
          channels.is_paused = true;
          answer_released(request.done, step,
                          channels.board.read()->resources[Resource::kDeviceReserved]);
        } else if constexpr (std::is_same_v<C, control::SaveCheckpoint>) {
          answer_at_step(request.done, step, {{"already_saved", true}});
        } else if constexpr (std::is_same_v<C, control::Stop>) {
          answer_at_step(request.done, step, {{"state", "stopping"}});
          return true;
        } else {
          answer(request.done,
                 Status(StatusCode::kBusy,
                        "training is paused without the memory of its device; `resume` first"));
        }
        return false;
      },
      request.command);
}

}  // namespace

void PauseLog::pause(uint64_t step) {
  if (!std::exchange(is_paused_, true)) log_info("training paused", {{"step", step}});
}

void PauseLog::resume(uint64_t step) {
  if (std::exchange(is_paused_, false)) log_info("training resumed", {{"step", step}});
}

void answer_unreleased(const Done& done, uint64_t step, std::string_view reason) {
  answer_at_step(done, step, {{"state", "paused"}, {"released", false}, {"reason", reason}});
}

void publish_released(TrainerChannels& channels, control::TrainerStatus last,
                      const Result<cuda::DeviceUsage>& usage) {
  const uint64_t step = channels.board.step();
  last.state = control::TrainerState::kPaused;
  last.step = step;
  last.waiting_for.clear();
  // There is no ring and no worker.
  last.feed.ready_batches = 0;
  last.feed.workers = 0;
  last.feed.external_producers = 0;
  if (usage.ok()) {
    last.resources[Resource::kDeviceAllocated] = static_cast<double>(usage->allocated_bytes);
    last.resources[Resource::kDeviceReserved] = static_cast<double>(usage->reserved_bytes);
  } else {
    log_warn("device memory not released", {{"error", usage.status().to_string()}});
  }
  channels.board.publish(std::move(last));
  channels.pause_log.pause(step);
  for (const Done& done : std::exchange(channels.release_requests, {})) {
    if (usage.ok())
      answer_released(done, step, static_cast<double>(usage->reserved_bytes));
    else
      answer(done, usage.status());
  }
}

bool wait_while_released(TrainerChannels& channels, const std::stop_token& stop) {
  const ScopedActivity paused(kReleased);
  const ScopedPhase unwatched(channels.board, control::TrainerPhase::kUnwatched);
  bool stops = false;
  while (channels.is_paused && !stops && !stop.stop_requested()) {
    channels.mailbox.wait(kReleasedPollInterval);
    for (const Request& request : channels.mailbox.take())
      stops = answer_while_released(channels, request) || stops;
  }
  if (stops || stop.stop_requested()) return false;
  channels.pause_log.resume(channels.board.step());
  control::TrainerStatus status = *channels.board.read();
  status.state = control::TrainerState::kStarting;
  channels.board.publish(std::move(status));
  return true;
}

}  // namespace stoker::train
