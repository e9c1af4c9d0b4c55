#include "daemon/ctl/status_text.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "daemon/ctl/number_text.h"

namespace stoker::ctl {
namespace {

using control::TrainerStatus;

std::string counted(uint64_t count, const std::string& singular) {
  const std::string_view ending = singular.ends_with('h') ? "es" : "s";
  return format_count(count) + " " + singular + (count == 1 ? "" : std::string(ending));
}

std::string progress(const TrainerStatus& status) {
  std::string text = "step " + format_count(status.step);
  if (status.steps == 0) return text;
  const double percent = 100 * static_cast<double>(status.step) / static_cast<double>(status.steps);
  return text + "/" + format_count(status.steps) + " (" +
         // 99.99 % is not the end.
         std::to_string(static_cast<int>(std::floor(std::min(percent, 100.0)))) + " %)";
}

bool is_moving(const TrainerStatus& status) {
  return status.state == control::TrainerState::kTraining ||
         status.state == control::TrainerState::kSaving ||
         status.state == control::TrainerState::kDegraded;
}

std::string training_text(const TrainerStatus& status) {
  std::string text = progress(status) + ", epoch " + format_count(status.epoch);
  if (is_moving(status) && std::isfinite(status.eta_s) && status.eta_s > 0)
    text += ", ETA " + format_duration(status.eta_s);
  return text;
}

std::string loss_text(const TrainerStatus& status) {
  return (std::isnan(status.loss) && status.step == 0 ? "none" : format_number(status.loss, 5)) +
         ", learning rate " + format_setting(status.lr) +
         (status.skipped_steps > 0 ? ", " + counted(status.skipped_steps, "step") + " skipped"
                                   : "") +
         (status.rollbacks > 0 ? ", " + counted(status.rollbacks, "rollback") : "");
}

std::string speed_text(const TrainerStatus& status) {
  return format_number(status.samples_per_s, 4) + " samples/s, " +
         format_number(status.step_ms, 3) + " ms/step" +
         (status.device_ms > 0 ? " (" + format_number(status.device_ms, 3) + " ms device)" : "") +
         (status.device.empty() ? "" : ", on " + printable(status.device));
}

std::string memory_text(const TrainerStatus& status) {
  const TrainerStatus::Memory& memory = status.memory;
  std::string text = "RSS " + format_bytes(memory.resident_bytes) + " (peak " +
                     format_bytes(memory.resident_peak_bytes) + ")";
  if (memory.device_reserved_bytes > 0)
    text += "; " + printable(status.device) + " allocated " + format_bytes(memory.device_bytes) +
            " (peak " + format_bytes(memory.device_peak_bytes) + "), reserved " +
            format_bytes(memory.device_reserved_bytes);
  return text;
}

std::string feed_text(const TrainerStatus::Feed& feed) {
  std::string text = "data wait " + format_number(feed.wait_ms, 3) + " ms/step, " +
                     format_count(feed.ready_slots) + "/" + format_count(feed.slots) +
                     " batches ready, " +
                     counted(static_cast<uint64_t>(std::max(feed.readers, 0)), "worker");
  std::string work;
  for (const auto& [threads, what] : {std::pair{feed.reading, "reading"},
                                      {feed.decoding, "decoding"},
                                      {feed.transforming, "transforming"},
                                      {feed.waiting, "waiting for a slot"}})
    if (threads >= 0.005)
      work += (work.empty() ? "" : ", ") + format_number(threads, 2) + " " + what;
  if (!work.empty()) text += " (" + work + ")";
  if (feed.bad_samples > 0) text += ", " + counted(feed.bad_samples, "sample error");
  if (feed.reissued > 0) text += ", " + counted(feed.reissued, "batch") + " requeued";
  if (feed.deaths > 0) text += ", " + counted(feed.deaths, "worker crash");
  if (feed.hangs > 0) text += " (" + counted(feed.hangs, "timeout") + ")";
  if (feed.outside > 0) text += ", " + counted(feed.outside, "external producer");
  return text;
}

std::string checkpoint_text(const TrainerStatus::Checkpoint& checkpoint) {
  std::string text = checkpoint.last_step == 0
                         ? "none"
                         : "step " + format_count(checkpoint.last_step) + ", stall " +
                               format_number(checkpoint.stall_ms, 3) + " ms";
  if (checkpoint.in_flight) text += ", saving";
  if (checkpoint.skipped > 0) text += ", " + format_count(checkpoint.skipped) + " skipped";
  if (checkpoint.failures > 0) {
    text +=
        ", " + format_count(checkpoint.failures) + " FAILED: " + printable(checkpoint.last_error);
  }
  return text;
}

std::string evaluator_text(const TrainerStatus::Evaluator& evaluator) {
  if (evaluator.state == "not_started") return "not started";
  std::string text = printable(evaluator.state);
  if (evaluator.last_step > 0)
    text += ", evaluated up to step " + format_count(evaluator.last_step);
  if (!std::isnan(evaluator.best)) {
    text += ", best " + format_number(evaluator.best, 5) + " at step " +
            format_count(evaluator.best_step);
  }
  return text;
}

const char* colour_of(control::TrainerState state) {
  switch (state) {
    case control::TrainerState::kPaused:
    case control::TrainerState::kStopping:
      return "\x1b[1;33m";
    case control::TrainerState::kDegraded:
      return "\x1b[1;31m";
    default:
      return "\x1b[1;32m";
  }
}

}  // namespace

std::string render_status(const TrainerStatus& status, const TextStyle& style) {
  std::string out;
  const auto line = [&out](std::string name, const std::string& text, const char* colour) {
    name.resize(12, ' ');
    out += colour != nullptr ? colour + name + "\x1b[0m" : name;
    out += text + "\n";
  };
  line(std::string(control::state_name(status.state)), training_text(status),
       style.colour ? colour_of(status.state) : nullptr);
  line("loss", loss_text(status), nullptr);
  line("speed", speed_text(status), nullptr);
  if (status.memory.resident_bytes > 0) line("memory", memory_text(status), nullptr);
  line("feed", feed_text(status.feed), nullptr);
  line("checkpoint", checkpoint_text(status.checkpoint), nullptr);
  line("evaluator", evaluator_text(status.evaluator), nullptr);
  line("stokerd",
       "pid " + std::to_string(status.pid) + ", up " + format_duration(status.uptime_s) + ", in " +
           printable(status.run_dir),
       nullptr);
  return out;
}

std::string render_status_line(const TrainerStatus& status) {
  std::string text = std::string(control::state_name(status.state)) + " " + progress(status) +
                     " loss " + format_number(status.loss, 5) + ", " +
                     format_number(status.samples_per_s, 4) + " samples/s, data wait " +
                     format_number(status.feed.wait_ms, 3) + " ms";
  if (is_moving(status) && std::isfinite(status.eta_s) && status.eta_s > 0)
    text += ", ETA " + format_duration(status.eta_s);
  return text;
}

}  // namespace stoker::ctl
