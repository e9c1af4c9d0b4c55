#include "shared/metrics/train_metrics.h"

namespace stoker::metrics {
namespace {

Status missing_field(std::string_view name) {
  return Status(StatusCode::kCorrupt,
                "field \"" + std::string(name) + "\" is missing or has the wrong type");
}

Status read(const MetricsRecord& record, std::string_view name, uint64_t& out) {
  const auto count = record.find_count(name);
  if (!count.has_value()) return missing_field(name);
  out = *count;
  return {};
}

Status read(const MetricsRecord& record, std::string_view name, double& out) {
  const auto number = record.find_number(name);
  if (!number.has_value()) return missing_field(name);
  out = *number;
  return {};
}

}  // namespace

MetricsRecord to_record(const TrainMetrics& record) {
  MetricsRecord out;
  out.add("step", record.step)
      .add("epoch", record.epoch)
      .add("loss", record.loss)
      .add("lr", record.lr)
      .add("grad_norm", record.grad_norm)
      .add("samples_seen", record.samples);
  if (record.maybe_skipped_steps) out.add("skipped_steps", *record.maybe_skipped_steps);
  if (record.maybe_loss_scale) out.add("loss_scale", *record.maybe_loss_scale);
  out.add("samples_per_second", record.samples_per_s)
      .add("step_time_ms", record.step_ms)
      .add("data_wait_ms", record.feed_wait_ms)
      .add("checkpoint_stall_ms", record.checkpoint_stall_ms)
      .add("degraded", record.degraded)
      .add("wall_time", std::string_view(record.wall));
  return out;
}

Result<TrainMetrics> train_metrics_from(const MetricsRecord& record) {
  TrainMetrics out;
  STOKER_RETURN_IF_ERROR(read(record, "step", out.step));
  STOKER_RETURN_IF_ERROR(read(record, "epoch", out.epoch));
  STOKER_RETURN_IF_ERROR(read(record, "loss", out.loss));
  STOKER_RETURN_IF_ERROR(read(record, "lr", out.lr));
  STOKER_RETURN_IF_ERROR(read(record, "grad_norm", out.grad_norm));
  STOKER_RETURN_IF_ERROR(read(record, "samples_seen", out.samples));
  STOKER_RETURN_IF_ERROR(read(record, "samples_per_second", out.samples_per_s));
  STOKER_RETURN_IF_ERROR(read(record, "step_time_ms", out.step_ms));
  STOKER_RETURN_IF_ERROR(read(record, "data_wait_ms", out.feed_wait_ms));
  STOKER_RETURN_IF_ERROR(read(record, "checkpoint_stall_ms", out.checkpoint_stall_ms));
  out.maybe_skipped_steps = record.find_count("skipped_steps");
  out.maybe_loss_scale = record.find_number("loss_scale");
  out.degraded = record.find_count("degraded").value_or(0);  // rows of earlier releases lack it
  auto wall = record.find_text("wall_time");
  if (!wall.has_value()) return missing_field("wall_time");
  out.wall = *std::move(wall);
  return out;
}

}  // namespace stoker::metrics
