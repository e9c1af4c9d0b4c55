#include "shared/metrics/train_row.h"

namespace stoker::metrics {
namespace {

Status missing(std::string_view name) {
  return Status(Code::kCorrupt,
                "field \"" + std::string(name) + "\" is missing or has the wrong type");
}

Status read(const Row& row, std::string_view name, uint64_t& out) {
  const auto count = row.maybe_count(name);
  if (!count.has_value()) return missing(name);
  out = *count;
  return {};
}

Status read(const Row& row, std::string_view name, double& out) {
  const auto number = row.maybe_number(name);
  if (!number.has_value()) return missing(name);
  out = *number;
  return {};
}

}  // namespace

Row to_row(const TrainRow& row) {
  Row out;
  out.add("step", row.step)
      .add("epoch", row.epoch)
      .add("loss", row.loss)
      .add("lr", row.lr)
      .add("grad_norm", row.grad_norm)
      .add("samples_seen", row.samples);
  if (row.maybe_skipped_steps) out.add("skipped_steps", *row.maybe_skipped_steps);
  if (row.maybe_loss_scale) out.add("loss_scale", *row.maybe_loss_scale);
  out.add("samples_per_second", row.samples_per_s)
      .add("step_time_ms", row.step_ms)
      .add("data_wait_ms", row.feed_wait_ms)
      .add("checkpoint_stall_ms", row.checkpoint_stall_ms)
      .add("degraded", row.degraded)
      .add("wall_time", std::string_view(row.wall));
  return out;
}

Result<TrainRow> train_row_of(const Row& row) {
  TrainRow out;
  STOKER_RETURN_IF_ERROR(read(row, "step", out.step));
  STOKER_RETURN_IF_ERROR(read(row, "epoch", out.epoch));
  STOKER_RETURN_IF_ERROR(read(row, "loss", out.loss));
  STOKER_RETURN_IF_ERROR(read(row, "lr", out.lr));
  STOKER_RETURN_IF_ERROR(read(row, "grad_norm", out.grad_norm));
  STOKER_RETURN_IF_ERROR(read(row, "samples_seen", out.samples));
  STOKER_RETURN_IF_ERROR(read(row, "samples_per_second", out.samples_per_s));
  STOKER_RETURN_IF_ERROR(read(row, "step_time_ms", out.step_ms));
  STOKER_RETURN_IF_ERROR(read(row, "data_wait_ms", out.feed_wait_ms));
  STOKER_RETURN_IF_ERROR(read(row, "checkpoint_stall_ms", out.checkpoint_stall_ms));
  out.maybe_skipped_steps = row.maybe_count("skipped_steps");
  out.maybe_loss_scale = row.maybe_number("loss_scale");
  out.degraded = row.maybe_count("degraded").value_or(0);  // rows of earlier releases lack it
  auto wall = row.maybe_text("wall_time");
  if (!wall.has_value()) return missing("wall_time");
  out.wall = *std::move(wall);
  return out;
}

}  // namespace stoker::metrics
