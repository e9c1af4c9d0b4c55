#include "shared/control/trainer_status.h"

#include <array>
#include <cmath>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 6> kStateNames = {"starting", "training", "paused",
                                                         "saving",   "stopping", "degraded"};

// Writes fields to an object.
class FieldWriter {
 public:
  explicit FieldWriter(json::object& object) : object_(object) {}

  void value(const char* name, double value) {
    object_[name] = std::isfinite(value) ? json::value(value) : json::value();
  }
  template <std::integral T>
  void value(const char* name, T value) {
    object_[name] = value;
  }
  void value(const char* name, const std::string& text) { object_[name] = valid_utf8(text); }
  template <typename Struct>
  void object(const char* name, const Struct& fields) {
    object_[name] = written(fields);
  }
  template <typename Struct>
  void array(const char* name, const std::vector<Struct>& items) {
    json::array list;
    for (const Struct& item : items) list.push_back(written(item));
    object_[name] = std::move(list);
  }

 private:
  template <typename Struct>
  static json::object written(const Struct& fields) {
    json::object object;
    FieldWriter writer(object);
    list_fields(writer, fields);
    return object;
  }
  json::object& object_;
};

// Reads the fields of an object and records the first one that has the wrong type.
class FieldReader {
 public:
  FieldReader(const json::object& object, std::string prefix, std::string& first_error)
      : object_(object), prefix_(std::move(prefix)), first_error_(first_error) {}

  void value(const char* name, double& out) {
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
  void value(const char* name, T& out) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    boost::system::error_code error;
    const T read = value->to_number<T>(error);
    if (error) return add_error(name);
    out = read;
  }
  void value(const char* name, bool& out) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_bool()) return add_error(name);
    out = value->get_bool();
  }
  void value(const char* name, std::string& out) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_string()) return add_error(name);
    out = std::string(value->get_string());
  }
  template <typename Struct>
  void object(const char* name, Struct& out) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_object()) return add_error(name);
    read_into(out, name, value->get_object());
  }
  template <typename Struct>
  void array(const char* name, std::vector<Struct>& out) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return;
    if (!value->is_array()) return add_error(name);
    for (const json::value& item : value->get_array()) {
      if (!item.is_object()) return add_error(name);
      read_into(out.emplace_back(), name, item.get_object());
    }
  }

 private:
  template <typename Struct>
  void read_into(Struct& out, const char* name, const json::object& object) {
    FieldReader reader(object, prefix_ + name + ".", first_error_);
    list_fields(reader, out);
  }
  void add_error(const char* name) {
    if (first_error_.empty()) first_error_ = prefix_ + name;
  }
  const json::object& object_;
  const std::string prefix_;
  std::string& first_error_;
};

// list_fields: the fields of each object, once for the reader, with a Struct, and the writer, with a const
// Struct.
template <typename T, typename Struct>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Struct>;

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::TrainingMetric> auto& metric) {
  fields.value("name", metric.name);
  fields.value("value", metric.value);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<std::pair<std::string, std::string>> auto& setting) {
  fields.value("key", setting.first);
  fields.value("value", setting.second);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<ResourceUse> auto& use) {
  for (size_t i = 0; i < kResources; ++i)
    fields.value(kResourceFields[i].name.data(), use.values()[i]);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Feed> auto& feed) {
  fields.value("data_wait_ms", feed.data_wait_ms);
  fields.value("ready_batches", feed.ready_batches);
  fields.value("queue_capacity", feed.queue_capacity);
  fields.value("sample_errors", feed.sample_errors);
  fields.value("requeued_batches", feed.requeued_batches);
  fields.value("workers", feed.workers);
  fields.value("worker_crashes", feed.worker_crashes);
  fields.value("worker_timeouts", feed.worker_timeouts);
  fields.value("external_producers", feed.external_producers);
  fields.value("workers_reading", feed.workers_reading);
  fields.value("workers_decoding", feed.workers_decoding);
  fields.value("workers_transforming", feed.workers_transforming);
  fields.value("workers_waiting", feed.workers_waiting);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Checkpoint> auto& checkpoint) {
  fields.value("last_saved_step", checkpoint.last_saved_step);
  fields.value("is_saving", checkpoint.is_saving);
  fields.value("stall_ms", checkpoint.stall_ms);
  fields.value("commit_ms", checkpoint.commit_ms);
  fields.value("saved_total", checkpoint.saved_total);
  fields.value("failed_total", checkpoint.failed_total);
  fields.value("skipped_total", checkpoint.skipped_total);
  fields.value("last_error", checkpoint.last_error);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Evaluator> auto& evaluator) {
  fields.value("state", evaluator.state);
  fields.value("reason", evaluator.reason);
  fields.value("last_evaluated_step", evaluator.last_evaluated_step);
  fields.value("best_value", evaluator.best_value);
  fields.value("best_step", evaluator.best_step);
  fields.value("best_metric", evaluator.best_metric);
  fields.value("best_direction", evaluator.best_direction);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Group::Rank> auto& rank) {
  fields.value("compute_ms", rank.compute_ms);
  fields.value("data_wait_ms", rank.data_wait_ms);
  fields.value("optimizer_bytes", rank.optimizer_bytes);
  for (size_t i = 0; i < rank.use.size(); ++i)
    fields.value(kResourceFields[i].name.data(), rank.use[i]);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Group> auto& group) {
  fields.value("world_size", group.world_size);
  fields.value("restart_count", group.restart_count);
  fields.value("exchange_ms", group.exchange_ms);
  fields.array("ranks", group.ranks);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Cluster::Task> auto& task) {
  fields.value("job", task.job);
  fields.value("index", task.index);
  fields.value("address", task.address);
  fields.value("state", task.state);
  fields.value("starts", task.starts);
  fields.value("applied_gradients", task.applied_gradients);
  fields.value("dropped_gradients", task.dropped_gradients);
  fields.value("parameter_bytes", task.parameter_bytes);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Cluster> auto& cluster) {
  fields.value("replicas", cluster.replicas);
  fields.value("stale_gradients", cluster.stale_gradients);
  fields.value("backup_gradients", cluster.backup_gradients);
  fields.value("largest_staleness", cluster.largest_staleness);
  fields.array("tasks", cluster.tasks);
}

template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus::Control> auto& control) {
  fields.value("connections", control.connections);
  fields.value("connections_accepted", control.connections_accepted);
  fields.value("connections_rejected", control.connections_rejected);
  fields.value("requests_total", control.requests_total);
  fields.value("requests_failed", control.requests_failed);
  fields.value("connections_dropped", control.connections_dropped);
}

// Without `state`, whose words are those of to_string().
template <typename Visitor>
void list_fields(Visitor& fields, MaybeConst<TrainerStatus> auto& status) {
  fields.value("step", status.step);
  fields.value("max_steps", status.max_steps);
  fields.value("epoch", status.epoch);
  fields.value("loss", status.loss);
  fields.array("training_metrics", status.training_metrics);
  fields.value("lr", status.lr);
  fields.value("samples_per_second", status.samples_per_second);
  fields.value("step_time_ms", status.step_time_ms);
  fields.value("device_time_ms", status.device_time_ms);
  fields.value("eta_seconds", status.eta_seconds);
  fields.value("skipped_steps", status.skipped_steps);
  fields.value("rollbacks", status.rollbacks);
  fields.value("device", status.device);
  fields.value("data", status.data);
  fields.array("live_settings", status.live_settings);
  fields.value("waiting_for", status.waiting_for);
  fields.object("resources", status.resources);
  fields.object("feed", status.feed);
  fields.object("checkpoint", status.checkpoint);
  fields.object("evaluator", status.evaluator);
  fields.object("group", status.group);
  fields.object("cluster", status.cluster);
  fields.object("control", status.control);
  fields.value("run_dir", status.run_dir);
  fields.value("run_dir_id", status.run_dir_id);
  fields.value("pid", status.pid);
  fields.value("uptime_seconds", status.uptime_seconds);
}

}  // namespace

std::string_view to_string(TrainerState state) {
  return kStateNames.at(static_cast<size_t>(state));
}

std::string to_json(const TrainerStatus& status) {
  json::object root;
  FieldWriter writer(root);
  writer.value("state", std::string(to_string(status.state)));
  list_fields(writer, status);
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
  FieldReader root(object, "", first_error);
  std::string state;
  root.value("state", state);
  if (state.empty() || !object.contains("step"))
    return Status(StatusCode::kCorrupt, "the status has no state or no step");
  size_t index = 0;
  while (index < kStateNames.size() && kStateNames[index] != state) ++index;
  if (index == kStateNames.size())
    return Status(StatusCode::kCorrupt, "status: unknown state '" + state + "'");
  status.state = static_cast<TrainerState>(index);
  list_fields(root, status);
  if (!first_error.empty())
    return Status(StatusCode::kCorrupt, "status: " + first_error + " has the wrong type");
  return status;
}

}  // namespace stoker::control
