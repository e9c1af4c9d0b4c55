#include "ctl/status_format.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/readable_format.h"
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

// ", 4 min 2 s ago"; empty: the time is not known.
std::string ago(const std::string& time) {
  const std::string age = format_age(time);
  return age == "-" ? "" : age + " ago";
}

std::string format_eta(const view::RunSummary& summary) {
  return summary.eta_seconds > 0 ? "ETA " + format_estimate(summary.eta_seconds) : "";
}

// "step 10/20 (50 %), epoch 0, ETA 25 s", "step 150, 3 min ago"
std::string format_state(const view::RunSummary& summary, const std::string& epoch = "") {
  std::string text = format_progress(summary.step, summary.max_steps) + epoch;
  const std::string since = ago(summary.since), eta = format_eta(summary);
  if (summary.state == "paused" && !since.empty())
    text += ", for " + format_age(summary.since);
  else if (!since.empty())
    text += ", " + since;
  return text + (eta.empty() ? "" : ", " + eta);
}

// ", accuracy 0.93"; empty if there is no value.
std::string format_metrics(const std::vector<TrainerStatus::TrainingMetric>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    if (!std::isnan(value)) text += ", " + printable(name) + " " + format_value(value);
  return text;
}

std::string format_loss(const TrainerStatus& status) {
  return (has_interval(status)
              ? format_value(status.loss) + format_metrics(status.training_metrics) +
                    ", learning rate " + format_rate(status.lr)
              : "-") +
         (status.skipped_steps > 0 ? ", " + pluralize(status.skipped_steps, "step") + " skipped"
                                   : "") +
         (status.rollbacks > 0 ? ", " + pluralize(status.rollbacks, "rollback") : "");
}

std::string format_speed(const TrainerStatus& status) {
  return (has_interval(status) ? format_rate(status.samples_per_second) + " samples/s, " +
                                     format_milliseconds(status.step_time_ms) + " ms/step"
                               : "-") +
         (status.device_time_ms > 0
              ? " (" + format_milliseconds(status.device_time_ms) + " ms device)"
              : "") +
         (status.device.empty() ? "" : ", on " + printable(status.device));
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
      activities += (activities.empty() ? "" : ", ") + format_threads(threads) + " " + activity;
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

std::string format_saving(const TrainerStatus::Checkpoint& checkpoint) {
  std::string text;
  if (checkpoint.saved_total > 0)
    text += ", stall " + format_milliseconds(checkpoint.stall_ms) + " ms";
  if (checkpoint.is_saving) text += ", saving";
  if (checkpoint.skipped_total > 0)
    text += ", " + format_count(checkpoint.skipped_total) + " skipped";
  if (checkpoint.failed_total > 0) text += ", " + format_count(checkpoint.failed_total) + " FAILED";
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

namespace {

std::string known_bytes(double bytes) {
  return std::isfinite(bytes) && bytes >= 0 ? format_bytes(static_cast<uint64_t>(bytes)) : "-";
}

}  // namespace

std::string format_cpu(const ResourceUse& use) {
  if (std::isnan(use[Resource::kCpu])) return "-";
  std::string text = format_rate(use[Resource::kCpu]) + " cores";
  if (const double workers = use[Resource::kWorkerCpu]; std::isfinite(workers))
    text += ", workers " + format_rate(workers);
  if (const double machine = use[Resource::kMachineCpu]; std::isfinite(machine))
    text += "; machine " + format_rate(machine);
  if (const double device = use[Resource::kDeviceBusy]; std::isfinite(device))
    text += "; device " + std::to_string(static_cast<int>(100 * device)) + " %";
  return text;
}

std::string format_transfer(const ResourceUse& use) {
  const auto rates = [&use](std::initializer_list<std::pair<const char*, Resource>> named) {
    std::string text;
    for (const auto& [name, resource] : named)
      if (use[resource] >= 1)
        text += (text.empty() ? "" : ", ") + (name + (" " + known_bytes(use[resource]) + "/s"));
    return text;
  };
  std::string text = rates({{"read", Resource::kRead},
                            {"written", Resource::kWritten},
                            {"workers read", Resource::kWorkerRead},
                            {"workers written", Resource::kWorkerWritten}});
  const std::string machine = rates({{"disks read", Resource::kDiskRead},
                                     {"disks written", Resource::kDiskWritten},
                                     {"network received", Resource::kNetworkReceived},
                                     {"network sent", Resource::kNetworkSent}});
  if (!machine.empty()) text += (text.empty() ? "machine: " : "; machine: ") + machine;
  return text.empty() ? "-" : text;
}

std::string format_memory(const TrainerStatus& status) {
  const ResourceUse& use = status.resources;
  std::string text = "RSS " + known_bytes(use[Resource::kRss]) + " (peak " +
                     known_bytes(use[Resource::kPeakRss]) + ")";
  if (const double workers = use[Resource::kWorkerRss]; workers > 0)
    text += ", workers " + known_bytes(workers);
  if (use[Resource::kDeviceReserved] > 0)
    text += "; " + printable(status.device) + " allocated " +
            known_bytes(use[Resource::kDeviceAllocated]) + " (peak " +
            known_bytes(use[Resource::kDevicePeakAllocated]) + "), reserved " +
            known_bytes(use[Resource::kDeviceReserved]);
  return text;
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
  if (times.size() == 2) {
    text += " (the other " + format_milliseconds(times[1 - slowest]);
  } else {
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    text += " (median " + format_milliseconds(times[times.size() / 2]);
  }
  text += "), data wait " + format_milliseconds(wait) + " ms; exchange " +
          format_milliseconds(group.exchange_ms) + " ms/step";
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

namespace {

std::optional<view::Health> color_of(const view::RunSummary& summary, const TextStyle& style) {
  return style.color ? std::optional(summary.health) : std::nullopt;
}

// What both a run that trains and one that has ended have; the state comes before.
void add_reason(std::string& out, const view::RunSummary& summary, const TextStyle& style) {
  if (!summary.reason.empty())
    add_line(out, "reason", printable(summary.reason),
             summary.health == view::Health::kGood ? std::nullopt : color_of(summary, style));
  if (!summary.next.empty()) add_line(out, "next", printable(summary.next));
}

void add_best(std::string& out, const view::RunSummary& summary) {
  if (const std::string best = format_best(summary); best != "-")
    add_line(
        out, "best",
        best +
            (summary.best->direction.empty() ? ""
                                             : " (" + printable(summary.best->direction) + ")") +
            " at step " + format_count(summary.best->step));
}

void add_times(std::string& out, const view::RunSummary& summary) {
  if (summary.started.empty()) return;
  std::string text = format_local_time(summary.started);
  if (!summary.is_running && !summary.since.empty())
    text += ", " + summary.state + " " + format_local_time(summary.since);
  add_line(out, "started", text);
}

}  // namespace

std::string format_checkpoint(const view::RunSummary& summary) {
  if (!summary.checkpoint) return "none";
  std::string text = "step " + format_count(summary.checkpoint->step), age;
  if (summary.is_running && summary.step > summary.checkpoint->step)
    age = pluralize(summary.step - summary.checkpoint->step, "step");
  if (const std::string time = format_age(summary.checkpoint->saved_at); time != "-")
    age += (age.empty() ? "" : " and ") + time;
  return text + (age.empty() ? "" : ", " + age + " ago");
}

std::string format_evaluator(const view::RunSummary& summary) {
  using Phase = run::EvaluatorState::Phase;
  const auto& evaluator = summary.evaluator;
  std::string text = evaluator.phase == Phase::kNotStarted
                         ? "not started"
                         : std::string(to_string(evaluator.phase));
  if (!evaluator.reason.empty()) text += ": " + printable(evaluator.reason);
  if (const uint64_t behind = steps_behind(summary); behind > 0 && summary.evaluated_step)
    text += ", " + pluralize(behind, "step") + " behind";
  else if (summary.evaluated_step)
    text += ", up to date";
  return text;
}

std::string format_threads(double number) {
  if (!std::isfinite(number)) return "-";
  char text[24];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

std::vector<StepPhase> phases_of(const TrainerStatus& status, double stall_ms) {
  const double wait = status.feed.data_wait_ms, exchange = status.group.exchange_ms;
  std::vector<StepPhase> phases{
      {"compute", std::max(0.0, status.step_time_ms - wait - exchange - stall_ms), "34"},
      {"data wait", wait, "33"}};
  if (status.group.world_size > 1) phases.push_back({"exchange", exchange, "36"});
  phases.push_back({"checkpoint", stall_ms, "35"});
  return phases;
}

std::string render_status(const TrainerStatus& status, const TextStyle& style,
                          view::RunSummary summary) {
  add_status(summary, status);
  summary.is_running = true;
  std::string out;
  const auto line = [&out](const char* name, const std::string& text) {
    add_line(out, name, text);
  };
  add_line(out, summary.state, format_state(summary, ", epoch " + format_count(status.epoch)),
           color_of(summary, style));
  add_reason(out, summary, style);
  if (status.group.world_size > 1) line("group", format_group(status.group));
  if (!status.cluster.tasks.empty()) line("cluster", format_cluster(status.cluster));
  line("loss", format_loss(status));
  line("speed", format_speed(status));
  if (status.resources[Resource::kRss] > 0) line("memory", format_memory(status));
  if (const std::string cpu = format_cpu(status.resources); cpu != "-") line("cpu", cpu);
  if (const std::string bytes = format_transfer(status.resources); bytes != "-")
    line("transfer", bytes);
  if (!status.data.empty()) line("data", printable(status.data));
  line("feed", format_feed(status.feed));
  line("checkpoint", format_checkpoint(summary) + format_saving(status.checkpoint));
  line("evaluator", format_evaluator(summary));
  add_best(out, summary);
  add_times(out, summary);
  line("stokerd", "pid " + std::to_string(status.pid) + ", up " +
                      format_duration(status.uptime_seconds) + ", in " + printable(status.run_dir));
  return out;
}

std::string render_summary_line(const view::RunSummary& summary, const TextStyle& style) {
  std::string text =
      colored_state(summary, style) + " " + format_progress(summary.step, summary.max_steps);
  // First what is to be done: a terminal can be narrow.
  if (summary.health != view::Health::kGood && !summary.next.empty())
    text += "  " + printable(summary.next);
  if (!summary.reason.empty()) text += "  " + printable(summary.reason);
  if (std::isfinite(summary.loss)) text += "  loss " + format_value(summary.loss);
  if (summary.samples_per_second > 0)
    text += "  " + format_rate(summary.samples_per_second) + " samples/s";
  if (const std::string eta = format_eta(summary); !eta.empty()) text += "  " + eta;
  if (const std::string best = format_best(summary); best != "-") text += "  best " + best;
  return text;
}

std::string format_age(std::string_view time) {
  const auto then = parse_iso8601(time);
  const auto now = system_clock().wall();
  if (!then || *then > now) return "-";
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now - *then).count();
  return seconds < 60 ? std::to_string(seconds) + " s"
                      : format_duration(static_cast<double>(seconds));
}

std::string format_best(const view::RunSummary& summary) {
  if (!summary.best || !std::isfinite(summary.best->value)) return "-";
  return printable(summary.best->dataset + "/" + summary.best->metric) + " " +
         format_value(summary.best->value);
}

std::string colored_state(const view::RunSummary& summary, const TextStyle& style) {
  return style.color ? colored(summary.health, summary.state) : summary.state;
}

std::string render_summary(const view::RunSummary& summary, const TextStyle& style) {
  std::string out;
  add_line(out, summary.state, format_state(summary), color_of(summary, style));
  add_reason(out, summary, style);
  if (std::isfinite(summary.loss)) add_line(out, "loss", format_value(summary.loss));
  add_line(out, "checkpoint", format_checkpoint(summary));
  add_line(out, "evaluator", format_evaluator(summary));
  add_best(out, summary);
  add_times(out, summary);
  if (const auto& start = summary.last_start) {
    const std::string age = ago(start->time);
    add_line(out, "last start",
             "ended before training" + (age.empty() ? "" : ", " + age) + ", exit code " +
                 std::to_string(start->end.exit_code) + ": " + printable(start->end.reason));
  }
  add_line(out, "run", printable(summary.run_dir));
  return out;
}

}  // namespace stoker::ctl
