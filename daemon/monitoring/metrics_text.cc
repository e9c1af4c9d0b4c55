#include "daemon/monitoring/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace stoker::monitoring {
namespace {

using control::TrainerState;
using control::TrainerStatus;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  void gauge(const std::string& name, const std::string& help, double value) {
    if (!std::isnan(value)) add(MetricType::Gauge, name, help, {{{}, value}});
  }
  void counter(const char* name, const char* help, uint64_t value) {
    add(MetricType::Counter, name, help, {{{}, static_cast<double>(value)}});
  }
  struct Labeled {
    std::vector<ClientMetric::Label> labels;
    double value = 0;
  };
  void counters(const char* name, const char* help, std::vector<Labeled> values) {
    add(MetricType::Counter, name, help, std::move(values));
  }
  void gauges(const char* name, const char* help, std::vector<Labeled> values) {
    std::erase_if(values, [](const Labeled& each) { return std::isnan(each.value); });
    if (values.empty()) return;
    add(MetricType::Gauge, name, help, std::move(values));
  }
  std::string to_text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  void add(MetricType type, const std::string& name, const std::string& help,
           std::vector<Labeled> values) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    for (Labeled& value : values) {
      ClientMetric metric;
      metric.label = std::move(value.labels);
      (type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) = value.value;
      family.metric.push_back(std::move(metric));
    }
    families_.push_back(std::move(family));
  }

  std::vector<MetricFamily> families_;
};

ClientMetric::Label label(const char* name, std::string_view value) {
  ClientMetric::Label result;
  result.name = name;
  result.value = value;
  return result;
}

void add_state(Families& out, const TrainerStatus& status) {
  std::vector<Families::Labeled> states;
  for (const TrainerState state :
       {TrainerState::kStarting, TrainerState::kTraining, TrainerState::kPaused,
        TrainerState::kSaving, TrainerState::kStopping, TrainerState::kDegraded})
    states.push_back({{label("state", to_string(state))}, state == status.state ? 1.0 : 0.0});
  out.gauges("stoker_state", "1 for the state of training.", std::move(states));
  out.gauge("stoker_uptime_seconds", "Time since the start of stokerd.", status.uptime_seconds);
}

void add_training(Families& out, const TrainerStatus& status) {
  out.gauge("stoker_step", "Completed steps.", static_cast<double>(status.step));
  out.gauge("stoker_max_steps", "Step at which training ends.",
            static_cast<double>(status.max_steps));
  out.gauge("stoker_epoch", "Current epoch.", static_cast<double>(status.epoch));
  out.gauge("stoker_train_loss", "Mean loss of the last reported steps.", status.loss);
  std::vector<Families::Labeled> metrics;
  for (const auto& [name, value] : status.training_metrics)
    metrics.push_back({{label("name", name)}, value});
  out.gauges("stoker_train_metric", "Training metrics, over the same steps.", std::move(metrics));
  out.gauge("stoker_lr", "Learning rate.", status.lr);
  out.gauge("stoker_samples_per_second", "Samples trained on per second.",
            status.samples_per_second);
  out.gauge("stoker_step_time_seconds", "Mean time of a step.", status.step_time_ms / 1000);
  out.gauge("stoker_device_time_seconds", "Mean time of a step on the device.",
            status.device_time_ms / 1000);
  out.gauge("stoker_data_wait_seconds", "Mean time per step in which training waits for data.",
            status.feed.data_wait_ms / 1000);
  out.gauge("stoker_eta_seconds", "Estimated time to the end of training.", status.eta_seconds);
  out.counter("stoker_skipped_steps_total", "Steps with a nonfinite loss, gradient or buffer.",
              status.skipped_steps);
  out.counter("stoker_rollbacks_total", "Rollbacks to a checkpoint after nonfinite steps.",
              status.rollbacks);
}

void add_resources(Families& out, const ResourceUse& use) {
  for (size_t i = 0; i < kResources; ++i)
    out.gauge("stoker_" + std::string(kResourceFields[i].name),
              std::string(kResourceFields[i].help) + ".", use.values()[i]);
}

void add_feed(Families& out, const TrainerStatus::Feed& feed) {
  out.gauge("stoker_ready_batches", "Batches that wait for training.",
            static_cast<double>(feed.ready_batches));
  out.gauge("stoker_queue_capacity", "Batches that can wait for training.",
            static_cast<double>(feed.queue_capacity));
  out.counter("stoker_sample_errors_total", "Samples that could not be read.", feed.sample_errors);
  out.counter("stoker_requeued_batches_total", "Batches of crashed producers.",
              feed.requeued_batches);
  out.gauge("stoker_workers", "Active worker threads.", feed.workers);
  out.gauges("stoker_workers_in_state", "Mean number of worker threads in a state.",
             {{{label("state", "reading")}, feed.workers_reading},
              {{label("state", "decoding")}, feed.workers_decoding},
              {{label("state", "transforming")}, feed.workers_transforming},
              {{label("state", "waiting")}, feed.workers_waiting}});
  out.counter("stoker_worker_crashes_total", "Worker processes that crashed.", feed.worker_crashes);
  out.counter("stoker_worker_timeouts_total", "Worker processes killed after a timeout.",
              feed.worker_timeouts);
  out.gauge("stoker_external_producers", "Attached external producers.",
            static_cast<double>(feed.external_producers));
}

void add_processes(Families& out, const TrainerStatus& status) {
  out.gauge("stoker_ranks",
            "Processes that train the run: ranks, or parameter servers and workers.",
            status.group.world_size);
  const TrainerStatus::Cluster& cluster = status.cluster;
  if (cluster.replicas.empty()) return;
  std::vector<Families::Labeled> workers;
  for (const char* const state : {"not_started", "waiting", "training", "lost"}) {
    const auto is_in_state = [state](const TrainerStatus::Cluster::Task& task) {
      return task.job == "worker" && task.state == state;
    };
    workers.push_back({{label("state", state)},
                       static_cast<double>(std::ranges::count_if(cluster.tasks, is_in_state))});
  }
  out.gauges("stoker_cluster_workers", "Workers of parameter servers in a state.",
             std::move(workers));
  out.counters("stoker_gradients_dropped_total", "Gradients that the parameter servers dropped.",
               {{{label("reason", "stale")}, static_cast<double>(cluster.stale_gradients)},
                {{label("reason", "backup")}, static_cast<double>(cluster.backup_gradients)}});
  out.gauge("stoker_largest_staleness_updates",
            "Most updates between the parameters of an applied gradient and its own.",
            static_cast<double>(cluster.largest_staleness));
}

void add_checkpoints(Families& out, const TrainerStatus& status) {
  const TrainerStatus::Checkpoint& checkpoint = status.checkpoint;
  out.gauge("stoker_checkpoint_last_saved_step", "Step of the newest checkpoint; 0: none.",
            static_cast<double>(checkpoint.last_saved_step));
  out.gauge("stoker_checkpoint_is_saving", "1 while a checkpoint is written.",
            checkpoint.is_saving ? 1 : 0);
  out.gauge("stoker_checkpoint_stall_seconds", "Time that the last checkpoint delayed training.",
            checkpoint.stall_ms / 1000);
  out.counter("stoker_checkpoints_saved_total", "Saved checkpoints.", checkpoint.saved_total);
  out.counter("stoker_checkpoints_failed_total", "Checkpoints that could not be saved.",
              checkpoint.failed_total);
  out.counter("stoker_checkpoints_skipped_total",
              "Checkpoints that were due while another one was written.", checkpoint.skipped_total);
  const TrainerStatus::Evaluator& evaluator = status.evaluator;
  out.gauge("stoker_evaluator_is_running", "1 while stoker-eval watches the run.",
            evaluator.state == "running" ? 1 : 0);
  out.gauge("stoker_evaluator_last_evaluated_step", "Step of the last evaluated checkpoint.",
            static_cast<double>(evaluator.last_evaluated_step));
  if (!std::isnan(evaluator.best_value))
    out.gauges(
        "stoker_evaluator_best_value",
        "Best value of the monitored metric: the smallest one (minimize) or largest one "
        "(maximize).",
        {{{label("metric", evaluator.best_metric), label("direction", evaluator.best_direction)},
          evaluator.best_value}});
  out.gauge("stoker_evaluator_best_step", "Step of the checkpoint with the best value.",
            static_cast<double>(evaluator.best_step));
}

void add_control(Families& out, const TrainerStatus::Control& control) {
  out.gauge("stoker_control_connections", "Open control connections.",
            static_cast<double>(control.connections));
  out.counter("stoker_control_connections_accepted_total", "Accepted control connections.",
              control.connections_accepted);
  out.counter("stoker_control_connections_rejected_total", "Rejected control connections.",
              control.connections_rejected);
  out.counter("stoker_control_connections_dropped_total",
              "Control connections closed because of a limit.", control.connections_dropped);
  out.counter("stoker_control_requests_total", "Valid control requests.", control.requests_total);
  out.counter("stoker_control_requests_failed_total",
              "Control requests that were answered with an error.", control.requests_failed);
}

}  // namespace

std::string to_metrics_text(const TrainerStatus& status, const std::string& version) {
  Families out;
  out.gauges("stoker_build_info", "1, with the version and the device as labels.",
             {{{label("version", version), label("device", status.device)}, 1}});
  add_state(out, status);
  add_resources(out, status.resources);
  add_control(out, status.control);
  if (status.state == TrainerState::kStarting) return out.to_text();
  add_training(out, status);
  add_processes(out, status);
  add_feed(out, status.feed);
  add_checkpoints(out, status);
  return out.to_text();
}

}  // namespace stoker::monitoring
