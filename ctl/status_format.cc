#include "ctl/status_format.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/text_format.h"
#include "shared/base/clock.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

using control::TrainerStatus;

std::string pluralize(uint64_t count, const std::string& singular) {
  const std::string_view ending = singular.ends_with('h') ? "es" : "s";
  return format_count(count) + " " + singular + (count == 1 ? "" : std::string(ending));
}

std::string format_progress(uint64_t step, uint64_t max_steps) {
  std::string text = "step " + format_count(step);
  if (max_steps == 0) return text;
  const double percent = 100 * static_cast<double>(step) / static_cast<double>(max_steps);
  return text + "/" + format_count(max_steps) + " (" +
         // Round down: 99.99 % is not complete.
         std::to_string(static_cast<int>(std::floor(std::min(percent, 100.0)))) + " %)";
}

bool is_training(const TrainerStatus& status) {
  return status.state == control::TrainerState::kTraining ||
         status.state == control::TrainerState::kSaving ||
         status.state == control::TrainerState::kDegraded;
}

std::string format_training(const TrainerStatus& status) {
  std::string text =
      format_progress(status.step, status.max_steps) + ", epoch " + format_count(status.epoch);
  if (is_training(status) && std::isfinite(status.eta_seconds) && status.eta_seconds > 0)
    text += ", ETA " + format_estimate(status.eta_seconds);
  return text;
}

// ", accuracy 0.93"; empty if there is no value.
std::string format_metrics(const std::vector<TrainerStatus::TrainingMetric>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    if (!std::isnan(value)) text += ", " + printable(name) + " " + format_number(value, 5);
  return text;
}

std::string format_loss(const TrainerStatus& status) {
  return (has_interval(status)
              ? format_number(status.loss, 5) + format_metrics(status.training_metrics) +
                    ", learning rate " + format_setting(status.lr)
              : "-") +
         (status.skipped_steps > 0 ? ", " + pluralize(status.skipped_steps, "step") + " skipped"
                                   : "") +
         (status.rollbacks > 0 ? ", " + pluralize(status.rollbacks, "rollback") : "");
}

std::string format_speed(const TrainerStatus& status) {
  return (has_interval(status) ? format_number(status.samples_per_second, 4) + " samples/s, " +
                                     format_milliseconds(status.step_time_ms) + " ms/step"
                               : "-") +
         (status.device_time_ms > 0
              ? " (" + format_milliseconds(status.device_time_ms) + " ms device)"
              : "") +
         (status.device.empty() ? "" : ", on " + printable(status.device));
}

std::string format_memory(const TrainerStatus& status) {
  const TrainerStatus::Memory& memory = status.memory;
  std::string text = "RSS " + format_bytes(memory.rss_bytes) + " (peak " +
                     format_bytes(memory.peak_rss_bytes) + ")";
  if (memory.device_reserved_bytes > 0)
    text += "; " + printable(status.device) + " allocated " +
            format_bytes(memory.device_allocated_bytes) + " (peak " +
            format_bytes(memory.device_peak_allocated_bytes) + "), reserved " +
            format_bytes(memory.device_reserved_bytes);
  return text;
}

std::string format_feed(const TrainerStatus::Feed& feed) {
  std::string text = "data wait " + format_milliseconds(feed.data_wait_ms) + " ms/step, " +
                     format_count(feed.ready_batches) + "/" + format_count(feed.queue_capacity) +
                     " batches ready, " +
                     pluralize(static_cast<uint64_t>(std::max(feed.workers, 0)), "worker");
  std::string activities;
  for (const auto& [threads, activity] : {std::pair{feed.workers_reading, "reading"},
                                          {feed.workers_decoding, "decoding"},
                                          {feed.workers_transforming, "transforming"},
                                          {feed.workers_waiting, "waiting for a slot"}})
    if (threads >= 0.005)
      activities += (activities.empty() ? "" : ", ") + format_number(threads, 2) + " " + activity;
  if (!activities.empty()) text += " (" + activities + ")";
  if (feed.sample_errors > 0) text += ", " + pluralize(feed.sample_errors, "sample error");
  if (feed.requeued_batches > 0)
    text += ", " + pluralize(feed.requeued_batches, "batch") + " requeued";
  if (feed.worker_crashes > 0) text += ", " + pluralize(feed.worker_crashes, "worker crash");
  if (feed.worker_timeouts > 0) text += " (" + pluralize(feed.worker_timeouts, "timeout") + ")";
  if (feed.external_producers > 0)
    text += ", " + pluralize(feed.external_producers, "external producer");
  return text;
}

std::string format_checkpoint(const TrainerStatus::Checkpoint& checkpoint) {
  std::string text = checkpoint.last_saved_step == 0 && checkpoint.saved_total == 0
                         ? "none"
                         : "step " + format_count(checkpoint.last_saved_step) + ", stall " +
                               format_milliseconds(checkpoint.stall_ms) + " ms";
  if (checkpoint.is_saving) text += ", saving";
  if (checkpoint.skipped_total > 0)
    text += ", " + format_count(checkpoint.skipped_total) + " skipped";
  if (checkpoint.failed_total > 0) {
    text += ", " + format_count(checkpoint.failed_total) +
            " FAILED: " + printable(checkpoint.last_error);
  }
  return text;
}

std::string format_evaluator(const TrainerStatus::Evaluator& evaluator) {
  if (evaluator.state == "not_started") return "not started";
  std::string text = printable(evaluator.state);
  if (evaluator.last_evaluated_step > 0 || !std::isnan(evaluator.best_value))
    text += ", evaluated up to step " + format_count(evaluator.last_evaluated_step);
  if (!std::isnan(evaluator.best_value)) {
    text +=
        ", best " + (evaluator.best_metric.empty() ? "" : printable(evaluator.best_metric) + " ") +
        format_number(evaluator.best_value, 5) + " at step " + format_count(evaluator.best_step);
  }
  return text;
}

std::string colored(view::Health health, const std::string& text) {
  return std::string("\x1b[") + color_code(health) + "m" + text + "\x1b[0m";
}

// A line with a name.
void add_line(std::string& out, std::string name, const std::string& text,
              std::optional<view::Health> color = std::nullopt) {
  name.resize(12, ' ');
  out += color ? colored(*color, name) : name;
  out += text + "\n";
}

}  // namespace

const char* color_code(view::Health health) {
  switch (health) {
    case view::Health::kGood:
      return "1;32";
    case view::Health::kAttention:
      return "1;33";
    case view::Health::kBad:
      break;
  }
  return "1;31";
}

std::string format_group(const TrainerStatus::Group& group) {
  std::string text = pluralize(static_cast<uint64_t>(std::max(group.world_size, 0)), "rank");
  if (group.restart_count > 0) text += ", " + pluralize(group.restart_count, "restart");
  if (group.ranks.empty()) return text;
  std::vector<double> times;
  for (const auto& rank : group.ranks) times.push_back(rank.compute_ms);
  const auto slowest = static_cast<size_t>(std::ranges::max_element(times) - times.begin());
  const double wait = group.ranks[slowest].data_wait_ms;
  text += "; slowest: rank " + std::to_string(slowest) + ", " +
          format_milliseconds(times[slowest]) + " ms/step";
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  text += " (median " + format_milliseconds(times[times.size() / 2]) + "), data wait " +
          format_milliseconds(wait) + " ms";
  const auto [least, most] =
      std::ranges::minmax_element(group.ranks, {}, &TrainerStatus::Group::Rank::optimizer_bytes);
  if (most->optimizer_bytes == 0) return text;
  text += "; optimizer state ";
  if (least->optimizer_bytes != most->optimizer_bytes)
    text += format_bytes(least->optimizer_bytes) + " to ";
  return text + format_bytes(most->optimizer_bytes) + " per rank";
}

std::string format_cluster(const TrainerStatus::Cluster& cluster) {
  uint64_t num_servers = 0;
  std::string sizes;
  std::map<std::string, uint64_t> num_workers;
  std::string absent;
  for (const TrainerStatus::Cluster::Task& task : cluster.tasks) {
    if (task.job == "ps") {
      sizes += (num_servers++ == 0 ? "" : ", ") + format_bytes(task.parameter_bytes);
      continue;
    }
    ++num_workers[task.state];
    if (task.state == "lost" || task.state == "not_started")
      absent += (absent.empty() ? "" : ", ") + ("worker " + std::to_string(task.index)) + " at " +
                printable(task.address);
  }
  std::string text = printable(cluster.replicas) + ", " +
                     pluralize(num_servers, "parameter server") + " (" + sizes + "), workers:";
  const char* separator = " ";
  for (const auto& [state, count] : num_workers) {
    std::string words = printable(state);
    std::ranges::replace(words, '_', ' ');
    text += separator + std::to_string(count) + " " + words;
    separator = ", ";
  }
  if (!absent.empty()) text += " (" + absent + ")";
  if (cluster.stale_gradients + cluster.backup_gradients > 0)
    text += "; gradients dropped: " + format_count(cluster.stale_gradients) + " stale, " +
            format_count(cluster.backup_gradients) + " of backups";
  if (cluster.replicas == "async")
    text += "; largest staleness " + format_count(cluster.largest_staleness);
  return text;
}

std::string render_status(const TrainerStatus& status, const TextStyle& style) {
  std::string out;
  const auto line = [&out](const char* name, const std::string& text) {
    add_line(out, name, text);
  };
  add_line(out, std::string(control::to_string(status.state)), format_training(status),
           style.color ? std::optional(view::health_of(status.state)) : std::nullopt);
  if (!status.waiting_for.empty()) line("waiting", printable(status.waiting_for));
  if (status.group.world_size > 1) line("group", format_group(status.group));
  if (!status.cluster.tasks.empty()) line("cluster", format_cluster(status.cluster));
  line("loss", format_loss(status));
  line("speed", format_speed(status));
  if (status.memory.rss_bytes > 0) line("memory", format_memory(status));
  if (!status.data.empty()) line("data", printable(status.data));
  line("feed", format_feed(status.feed));
  line("checkpoint", format_checkpoint(status.checkpoint));
  line("evaluator", format_evaluator(status.evaluator));
  line("stokerd", "pid " + std::to_string(status.pid) + ", up " +
                      format_duration(status.uptime_seconds) + ", in " + printable(status.run_dir));
  return out;
}

std::string render_status_line(const TrainerStatus& status) {
  std::string text = std::string(control::to_string(status.state)) + " " +
                     format_progress(status.step, status.max_steps);
  if (!status.waiting_for.empty()) text += " waiting for " + printable(status.waiting_for);
  if (has_interval(status))
    text += " loss " + format_number(status.loss, 5) + format_metrics(status.training_metrics) +
            ", " + format_number(status.samples_per_second, 4) + " samples/s, data wait " +
            format_milliseconds(status.feed.data_wait_ms) + " ms";
  if (is_training(status) && std::isfinite(status.eta_seconds) && status.eta_seconds > 0)
    text += ", ETA " + format_estimate(status.eta_seconds);
  return text;
}

std::string format_age(std::string_view time) {
  const auto then = parse_iso8601(time);
  const auto now = system_clock().wall();
  if (!then || *then > now) return "-";
  return format_duration(std::floor(std::chrono::duration<double>(now - *then).count()));
}

std::string format_best(const view::RunSummary& summary) {
  if (!summary.best || !std::isfinite(summary.best->value)) return "-";
  return printable(summary.best->dataset + "/" + summary.best->metric) + " " +
         format_number(summary.best->value, 5);
}

std::string colored_state(const view::RunSummary& summary, const TextStyle& style) {
  return style.color ? colored(summary.health, summary.state) : summary.state;
}

std::string render_summary(const view::RunSummary& summary, const TextStyle& style) {
  const auto ago = [](const std::string& time) {
    const std::string age = format_age(time);
    return age == "-" ? "" : ", " + age + " ago";
  };
  std::string out;
  add_line(out, summary.state,
           format_progress(summary.step, summary.max_steps) + ago(summary.since),
           style.color ? std::optional(summary.health) : std::nullopt);
  if (!summary.reason.empty()) add_line(out, "reason", printable(summary.reason));
  if (std::isfinite(summary.loss)) add_line(out, "loss", format_number(summary.loss, 5));
  if (summary.best)
    add_line(out, "best",
             format_best(summary) +
                 (summary.best->direction.empty() ? "" : " (" + summary.best->direction + ")") +
                 " at step " + format_count(summary.best->step));
  if (const auto& checkpoint = summary.checkpoint)
    add_line(out, "checkpoint",
             "step " + format_count(checkpoint->step) + ago(checkpoint->saved_at));
  else
    add_line(out, "checkpoint", "none");
  if (summary.checkpoint && summary.evaluated_step)
    add_line(
        out, "evaluator",
        "evaluated up to step " + format_count(*summary.evaluated_step) +
            (*summary.evaluated_step < summary.checkpoint->step
                 ? ", " + pluralize(summary.checkpoint->step - *summary.evaluated_step, "step") +
                       " behind"
                 : ""));
  if (const auto& start = summary.last_start)
    add_line(out, "last start",
             "ended before training" + ago(start->time) + ", exit code " +
                 std::to_string(start->end.exit_code) + ": " + printable(start->end.reason));
  if (!summary.next.empty()) add_line(out, "next", summary.next);
  add_line(out, "run", printable(summary.run_dir));
  return out;
}

}  // namespace stoker::ctl
