#include "shared/feed/sample_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shared/data/files/prefetched_bytes.h"
#include "shared/feed/worker_process.h"

namespace stoker::feed {
namespace {

constexpr uint64_t kMaxReplacements = 16;
using Clock = std::chrono::steady_clock;
// Read time is added to the ring in portions of this size; read latency is probed at the same
// interval.
constexpr auto kCountEvery = std::chrono::milliseconds(5);
constexpr uint64_t kMeasureEvery = 16;  // stages are measured in one of 16 fill() calls

}  // namespace

Status SampleReader::fill(RowTask& rows) {
  const bool measures = fills_++ % kMeasureEvery == 0;
  std::optional<data::StageTimer> measurement;
  if (measures) measurement.emplace(stages_);
  const auto start = Clock::now();
  std::chrono::nanoseconds fetching{0};
  if (is_probing() && rows.count == 1 && !rows.maybe_bytes) {
    probe_is_due_ = false;
    fetching = maybe_ahead_->fetch(rows, std::nullopt);
  }
  const Status status = read(rows);
  const std::chrono::nanoseconds duration = Clock::now() - start;
  if (rows.maybe_bytes) maybe_ahead_->record_work(duration - fetching);
  const auto target = static_cast<int64_t>(rows.count) * std::chrono::nanoseconds(kGroupTime);
  group_rows_ = static_cast<uint64_t>(
      std::clamp<int64_t>(target / std::max(duration, std::chrono::nanoseconds(1)), 1, kMaxRows));
  spent_.total += duration;
  if (measures) measured_ += duration;
  if (spent_.total >= kCountEvery) count();
  return as_lost_access(status).with_context("neither a sample nor any of its " +
                                             std::to_string(kMaxReplacements) +
                                             " replacement samples can be read; the last error");
}

Status SampleReader::read(const RowTask& rows) {
  plan_.at(rows.batch->claim().ticket, rows.first, std::span(planned_).first(rows.count));
  for (uint64_t i = 0; i < rows.count; ++i)
    samples_[i] = {.sample = planned_[i].sample, .random_key = plan_.random_key(planned_[i])};
  for (uint64_t done = 0; done < rows.count;) {
    const uint64_t remaining = rows.count - done;
    data::BatchReadResult read;
    {
      const data::files::PrefetchedBytes::Held held(rows.maybe_bytes.get());
      read = dataset_.read_batch(std::span(samples_).subspan(done, remaining),
                                 row_outputs(rows, done, remaining));
    }
    done += read.good;
    if (read.status.ok()) break;
    STOKER_RETURN_IF_ERROR(read_replacement(rows, done++, std::move(read.status)));
  }
  return {};
}

std::span<const std::span<std::byte>> SampleReader::row_outputs(const RowTask& rows, uint64_t first,
                                                                uint64_t count) {
  const ring::Claim& claim = rows.batch->claim();
  const ring::BatchLayout& layout = shapes_.of(claim.ticket);
  for (size_t tensor = 0; tensor < outputs_.size(); ++tensor)
    outputs_[tensor] = layout.rows(claim.slot, tensor, rows.first + first, count);
  return outputs_;
}

Status SampleReader::read_replacement(const RowTask& rows, uint64_t index, Status error) {
  const uint64_t ticket = rows.batch->claim().ticket;
  data::order::PlannedSample planned = planned_[index];
  const auto outputs = row_outputs(rows, index, 1);
  for (uint64_t attempt = 1; !error.ok(); ++attempt) {
    ring_.report_sample_error({.ticket = ticket,
                               .sample = planned.sample,
                               .code = error.code(),
                               .reason = reason_text(error, planned.sample)});
    if (attempt > kMaxReplacements) break;
    planned = plan_.replacement(ticket, rows.first + index, attempt);
    error = dataset_.read(planned.sample, plan_.random_key(planned), outputs);
  }
  return error;
}

// Removes the file name, which the receiver of the report knows: a long path would exceed the size
// of a report.
std::string SampleReader::reason_text(const Status& error, uint64_t sample) const {
  const std::string& message = error.message();
  const std::string file = dataset_.source(sample).file + ": ";
  return message.starts_with(file) ? message.substr(file.size()) : message;
}

// Extrapolates the stage times of the measured samples to all. Without new measurements, the
// previous fractions apply.
void SampleReader::count() {
  if (measured_.count() > 0) {
    for (size_t stage = 0; stage < data::kStages; ++stage)
      shares_[stage] =
          static_cast<double>(stages_.of[stage].count()) / static_cast<double>(measured_.count());
    measured_ = {};
    stages_ = {};
  }
  const auto part = [this](data::Stage stage) {
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(spent_.total.count()) *
                                                         shares_[static_cast<size_t>(stage)]));
  };
  spent_.decode = part(data::Stage::kDecode);
  spent_.transform = part(data::Stage::kTransform);
  ring_.add_read_time(std::exchange(spent_, {}));
  probe_is_due_ = true;
}

}  // namespace stoker::feed
