#include "shared/control/trainer_status.h"

#include <array>
#include <cmath>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 6> kStateNames = {"starting", "training", "paused",
                                                         "saving",   "stopping", "degraded"};

json::value number(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

json::object feed_json(const TrainerStatus::Feed& feed) {
  return {{"data_wait_ms", number(feed.data_wait_ms)},
          {"ready_batches", feed.ready_batches},
          {"queue_capacity", feed.queue_capacity},
          {"sample_errors", feed.sample_errors},
          {"requeued_batches", feed.requeued_batches},
          {"workers", feed.workers},
          {"worker_crashes", feed.worker_crashes},
          {"worker_timeouts", feed.worker_timeouts},
          {"external_producers", feed.external_producers},
          {"workers_reading", number(feed.workers_reading)},
          {"workers_decoding", number(feed.workers_decoding)},
          {"workers_transforming", number(feed.workers_transforming)},
          {"workers_waiting", number(feed.workers_waiting)}};
}

json::object metric_json(const TrainerStatus::TrainingMetric& metric) {
  return {{"name", valid_utf8(metric.name)}, {"value", number(metric.value)}};
}

json::object memory_json(const TrainerStatus::Memory& memory) {
  return {{"rss_bytes", memory.rss_bytes},
          {"peak_rss_bytes", memory.peak_rss_bytes},
          {"device_allocated_bytes", memory.device_allocated_bytes},
          {"device_reserved_bytes", memory.device_reserved_bytes},
          {"device_peak_allocated_bytes", memory.device_peak_allocated_bytes}};
}

json::object checkpoint_json(const TrainerStatus::Checkpoint& checkpoint) {
  return {
      {"last_saved_step", checkpoint.last_saved_step}, {"is_saving", checkpoint.is_saving},
      {"stall_ms", number(checkpoint.stall_ms)},       {"commit_ms", number(checkpoint.commit_ms)},
      {"saved_total", checkpoint.saved_total},         {"failed_total", checkpoint.failed_total},
      {"skipped_total", checkpoint.skipped_total},     {"last_error", checkpoint.last_error}};
}

json::object evaluator_json(const TrainerStatus::Evaluator& evaluator) {
  return {{"state", evaluator.state},
          {"last_evaluated_step", evaluator.last_evaluated_step},
          {"best_value", number(evaluator.best_value)},
          {"best_step", evaluator.best_step}};
}

json::object group_json(const TrainerStatus::Group& group) {
  json::array ranks;
  for (const TrainerStatus::Group::Rank& rank : group.ranks)
    ranks.push_back(json::object{{"compute_ms", number(rank.compute_ms)},
                                 {"data_wait_ms", number(rank.data_wait_ms)},
                                 {"optimizer_bytes", rank.optimizer_bytes}});
  return {{"world_size", group.world_size},
          {"restart_count", group.restart_count},
          {"ranks", std::move(ranks)}};
}

json::object cluster_json(const TrainerStatus::Cluster& cluster) {
  json::array tasks;
  for (const TrainerStatus::Cluster::Task& task : cluster.tasks)
    tasks.push_back(json::object{{"job", task.job},
                                 {"index", task.index},
                                 {"address", valid_utf8(task.address)},
                                 {"state", task.state},
                                 {"starts", task.starts},
                                 {"applied_gradients", task.applied_gradients},
                                 {"dropped_gradients", task.dropped_gradients},
                                 {"parameter_bytes", task.parameter_bytes}});
  return {{"replicas", cluster.replicas},
          {"stale_gradients", cluster.stale_gradients},
          {"backup_gradients", cluster.backup_gradients},
          {"largest_staleness", cluster.largest_staleness},
          {"tasks", std::move(tasks)}};
}

json::object control_json(const TrainerStatus::Control& control) {
  return {{"connections", control.connections},
          {"connections_accepted", control.connections_accepted},
          {"connections_rejected", control.connections_rejected},
          {"requests_total", control.requests_total},
          {"requests_failed", control.requests_failed},
          {"connections_dropped", control.connections_dropped}};
}

json::array settings_json(const std::vector<std::pair<std::string, std::string>>& settings) {
  json::array list;
  for (const auto& [key, value] : settings)
    list.push_back(json::object{{"key", valid_utf8(key)}, {"value", valid_utf8(value)}});
  return list;
}

// Reads the fields of one object and records the first one that has the wrong type.
class FieldReader {
 public:
  FieldReader(const json::object& object, std::string prefix, std::string& first_error)
      : object_(object), prefix_(std::move(prefix)), first_error_(first_error) {}

  void read(const char* name, double& out) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (value->is_null()) {
      out = std::nan("");
    } else if (value->is_number()) {
      out = value->to_number<double>();
    } else {
      add_error(name);
    }
  }
  template <std::integral T>
  void read(const char* name, T& out) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    boost::system::error_code error;
    const T read = value->to_number<T>(error);
    if (error) return add_error(name);
    out = read;
  }
  void read(const char* name, bool& out) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_bool()) return add_error(name);
    out = value->get_bool();
  }
  void read(const char* name, std::string& out) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_string()) return add_error(name);
    out = std::string(value->get_string());
  }
  // Calls `read_fields` for each object of an array.
  template <typename Read>
  void array(const char* name, Read&& read_fields) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_array()) return add_error(name);
    for (const json::value& item : value->get_array()) {
      if (!item.is_object()) return add_error(name);
      read_fields(FieldReader(item.get_object(), prefix_ + name + ".", first_error_));
    }
  }
  template <typename Read>
  void object(const char* name, Read&& read_fields) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_object()) return add_error(name);
    read_fields(FieldReader(value->get_object(), prefix_ + name + ".", first_error_));
  }

 private:
  void add_error(const char* name) const {
    if (first_error_.empty()) first_error_ = prefix_ + name;
  }
  const json::object& object_;
  const std::string prefix_;
  std::string& first_error_;
};

void read_objects(const FieldReader& root, TrainerStatus& status) {
  root.object("training_metric", [&](const FieldReader& fields) {
    fields.read("name", status.training_metric.name);
    fields.read("value", status.training_metric.value);
  });
  root.object("feed", [&](const FieldReader& fields) {
    fields.read("data_wait_ms", status.feed.data_wait_ms);
    fields.read("ready_batches", status.feed.ready_batches);
    fields.read("queue_capacity", status.feed.queue_capacity);
    fields.read("sample_errors", status.feed.sample_errors);
    fields.read("requeued_batches", status.feed.requeued_batches);
    fields.read("workers", status.feed.workers);
    fields.read("worker_crashes", status.feed.worker_crashes);
    fields.read("worker_timeouts", status.feed.worker_timeouts);
    fields.read("external_producers", status.feed.external_producers);
    fields.read("workers_reading", status.feed.workers_reading);
    fields.read("workers_decoding", status.feed.workers_decoding);
    fields.read("workers_transforming", status.feed.workers_transforming);
    fields.read("workers_waiting", status.feed.workers_waiting);
  });
  root.object("memory", [&](const FieldReader& fields) {
    fields.read("rss_bytes", status.memory.rss_bytes);
    fields.read("peak_rss_bytes", status.memory.peak_rss_bytes);
    fields.read("device_allocated_bytes", status.memory.device_allocated_bytes);
    fields.read("device_reserved_bytes", status.memory.device_reserved_bytes);
    fields.read("device_peak_allocated_bytes", status.memory.device_peak_allocated_bytes);
  });
  root.object("checkpoint", [&](const FieldReader& fields) {
    fields.read("last_saved_step", status.checkpoint.last_saved_step);
    fields.read("is_saving", status.checkpoint.is_saving);
    fields.read("stall_ms", status.checkpoint.stall_ms);
    fields.read("commit_ms", status.checkpoint.commit_ms);
    fields.read("saved_total", status.checkpoint.saved_total);
    fields.read("failed_total", status.checkpoint.failed_total);
    fields.read("skipped_total", status.checkpoint.skipped_total);
    fields.read("last_error", status.checkpoint.last_error);
  });
  root.object("evaluator", [&](const FieldReader& fields) {
    fields.read("state", status.evaluator.state);
    fields.read("last_evaluated_step", status.evaluator.last_evaluated_step);
    fields.read("best_value", status.evaluator.best_value);
    fields.read("best_step", status.evaluator.best_step);
  });
  root.object("group", [&](const FieldReader& fields) {
    fields.read("world_size", status.group.world_size);
    fields.read("restart_count", status.group.restart_count);
    fields.array("ranks", [&](const FieldReader& rank) {
      auto& read = status.group.ranks.emplace_back();
      rank.read("compute_ms", read.compute_ms);
      rank.read("data_wait_ms", read.data_wait_ms);
      rank.read("optimizer_bytes", read.optimizer_bytes);
    });
  });
  root.object("cluster", [&](const FieldReader& fields) {
    fields.read("replicas", status.cluster.replicas);
    fields.read("stale_gradients", status.cluster.stale_gradients);
    fields.read("backup_gradients", status.cluster.backup_gradients);
    fields.read("largest_staleness", status.cluster.largest_staleness);
    fields.array("tasks", [&](const FieldReader& task) {
      auto& read = status.cluster.tasks.emplace_back();
      task.read("job", read.job);
      task.read("index", read.index);
      task.read("address", read.address);
      task.read("state", read.state);
      task.read("starts", read.starts);
      task.read("applied_gradients", read.applied_gradients);
      task.read("dropped_gradients", read.dropped_gradients);
      task.read("parameter_bytes", read.parameter_bytes);
    });
  });
  root.array("live_settings", [&](const FieldReader& setting) {
    auto& [key, value] = status.live_settings.emplace_back();
    setting.read("key", key);
    setting.read("value", value);
  });
  root.object("control", [&](const FieldReader& fields) {
    fields.read("connections", status.control.connections);
    fields.read("connections_accepted", status.control.connections_accepted);
    fields.read("connections_rejected", status.control.connections_rejected);
    fields.read("requests_total", status.control.requests_total);
    fields.read("requests_failed", status.control.requests_failed);
    fields.read("connections_dropped", status.control.connections_dropped);
  });
}

void read_root_fields(const FieldReader& root, TrainerStatus& status) {
  root.read("step", status.step);
  root.read("max_steps", status.max_steps);
  root.read("epoch", status.epoch);
  root.read("loss", status.loss);
  root.read("lr", status.lr);
  root.read("samples_per_second", status.samples_per_second);
  root.read("step_time_ms", status.step_time_ms);
  root.read("device_time_ms", status.device_time_ms);
  root.read("eta_seconds", status.eta_seconds);
  root.read("skipped_steps", status.skipped_steps);
  root.read("rollbacks", status.rollbacks);
  root.read("device", status.device);
  root.read("waiting_for", status.waiting_for);
  root.read("run_dir", status.run_dir);
  root.read("run_dir_id", status.run_dir_id);
  root.read("pid", status.pid);
  root.read("uptime_seconds", status.uptime_seconds);
}

}  // namespace

std::string_view to_string(TrainerState state) {
  return kStateNames.at(static_cast<size_t>(state));
}

std::string to_json(const TrainerStatus& status) {
  const std::string_view state = to_string(status.state);
  const json::object root{{"state", json::string_view(state.data(), state.size())},
                          {"step", status.step},
                          {"max_steps", status.max_steps},
                          {"epoch", status.epoch},
                          {"loss", number(status.loss)},
                          {"training_metric", metric_json(status.training_metric)},
                          {"lr", number(status.lr)},
                          {"samples_per_second", number(status.samples_per_second)},
                          {"step_time_ms", number(status.step_time_ms)},
                          {"device_time_ms", number(status.device_time_ms)},
                          {"eta_seconds", number(status.eta_seconds)},
                          {"skipped_steps", status.skipped_steps},
                          {"rollbacks", status.rollbacks},
                          {"device", status.device},
                          {"live_settings", settings_json(status.live_settings)},
                          {"waiting_for", valid_utf8(status.waiting_for)},
                          {"memory", memory_json(status.memory)},
                          {"feed", feed_json(status.feed)},
                          {"checkpoint", checkpoint_json(status.checkpoint)},
                          {"evaluator", evaluator_json(status.evaluator)},
                          {"group", group_json(status.group)},
                          {"cluster", cluster_json(status.cluster)},
                          {"control", control_json(status.control)},
                          {"run_dir", status.run_dir},
                          {"run_dir_id", status.run_dir_id},
                          {"pid", status.pid},
                          {"uptime_seconds", number(status.uptime_seconds)}};
  return json::serialize(root);
}

Result<TrainerStatus> parse_trainer_status(std::string_view text) {
  boost::system::error_code error;
  const json::value value = parse_json(text, error);
  if (error || !value.is_object())
    return Status(StatusCode::kCorrupt, "the status is not a JSON object");
  const json::object& object = value.get_object();
  std::string first_error;
  TrainerStatus status;
  const FieldReader root(object, "", first_error);
  std::string state;
  root.read("state", state);
  if (state.empty() || !object.contains("step"))
    return Status(StatusCode::kCorrupt, "the status has no state or no step");
  size_t index = 0;
  while (index < kStateNames.size() && kStateNames[index] != state) ++index;
  if (index == kStateNames.size())
    return Status(StatusCode::kCorrupt, "status: unknown state '" + state + "'");
  status.state = static_cast<TrainerState>(index);
  read_root_fields(root, status);
  read_objects(root, status);
  if (!first_error.empty())
    return Status(StatusCode::kCorrupt, "status: " + first_error + " has the wrong type");
  return status;
}

}  // namespace stoker::control
