#include "shared/feed/row_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace stoker::feed {
namespace {

using Clock = std::chrono::steady_clock;
// Read time is added to the ring in such portions, and then it is looked whether reads are slow.
constexpr auto kCountEvery = std::chrono::milliseconds(5);
constexpr uint64_t kMeasureEvery = 16;  // of one fill() in so many the stages are measured

}  // namespace

Status RowReader::fill(Rows& rows) {
  const bool measures = fills_++ % kMeasureEvery == 0;
  std::optional<dataset::StageMeasurement> measurement;
  if (measures) measurement.emplace(stages_);
  const auto start = Clock::now();
  std::chrono::nanoseconds fetching{0};
  if (is_to_probe() && rows.count == 1 && !rows.maybe_bytes) {
    probe_is_due_ = false;
    fetching = maybe_ahead_->fetch(rows, std::nullopt);
  }
  const Status status = read(rows);
  const std::chrono::nanoseconds took = Clock::now() - start;
  if (rows.maybe_bytes) maybe_ahead_->note_work(took - fetching);
  const auto worth = static_cast<int64_t>(rows.count) * std::chrono::nanoseconds(kWorthTaking);
  rows_at_once_ = static_cast<uint64_t>(
      std::clamp<int64_t>(worth / std::max(took, std::chrono::nanoseconds(1)), 1, kMostRows));
  spent_.total += took;
  if (measures) measured_ += took;
  if (spent_.total >= kCountEvery) count();
  return status.with_context("neither a sample nor any of its " + std::to_string(kMaxStandIns) +
                             " stand-ins can be read; the last one");
}

Status RowReader::read(const Rows& rows) {
  plan_.at(rows.batch->claim().ticket, rows.first, std::span(planned_).first(rows.count));
  for (uint64_t i = 0; i < rows.count; ++i)
    samples_[i] = {.sample = planned_[i].sample, .draw = plan_.draw_key(planned_[i])};
  for (uint64_t done = 0; done < rows.count;) {
    const uint64_t left = rows.count - done;
    dataset::RowsRead read;
    {
      const dataset::PrefetchedBytes::Held held(rows.maybe_bytes.get());
      read =
          dataset_.read_rows(std::span(samples_).subspan(done, left), outputs_of(rows, done, left));
    }
    done += read.good;
    if (read.status.ok()) break;
    STOKER_RETURN_IF_ERROR(read_stand_in(rows, done++, std::move(read.status)));
  }
  return {};
}

std::span<const std::span<std::byte>> RowReader::outputs_of(const Rows& rows, uint64_t first,
                                                            uint64_t count) {
  const ring::Claim& claim = rows.batch->claim();
  const ring::BatchLayout& layout = shapes_.of(claim.ticket);
  for (size_t tensor = 0; tensor < outputs_.size(); ++tensor)
    outputs_[tensor] = layout.rows(claim.slot, tensor, rows.first + first, count);
  return outputs_;
}

Status RowReader::read_stand_in(const Rows& rows, uint64_t which, Status trouble) {
  const uint64_t ticket = rows.batch->claim().ticket;
  dataset::PlannedSample planned = planned_[which];
  const auto outputs = outputs_of(rows, which, 1);
  for (uint64_t attempt = 1; !trouble.ok(); ++attempt) {
    ring_.report_bad_sample({.ticket = ticket,
                             .sample = planned.sample,
                             .code = trouble.code(),
                             .reason = reason_of(trouble, planned.sample)});
    if (attempt > kMaxStandIns) break;
    planned = plan_.stand_in(ticket, rows.first + which, attempt);
    trouble = dataset_.read(planned.sample, plan_.draw_key(planned), outputs);
  }
  return trouble;
}

// Without the file, which whoever takes the report knows: a long path would fill what a report holds.
std::string RowReader::reason_of(const Status& trouble, uint64_t sample) const {
  const std::string& message = trouble.message();
  const std::string file = dataset_.origin(sample).file + ": ";
  return message.starts_with(file) ? message.substr(file.size()) : message;
}

// The samples that were measured stand for all; where there was none, those before it do.
void RowReader::count() {
  if (measured_.count() > 0) {
    for (size_t stage = 0; stage < dataset::kStages; ++stage)
      shares_[stage] =
          static_cast<double>(stages_.of[stage].count()) / static_cast<double>(measured_.count());
    measured_ = {};
    stages_ = {};
  }
  const auto part = [this](dataset::Stage stage) {
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(spent_.total.count()) *
                                                         shares_[static_cast<size_t>(stage)]));
  };
  spent_.decode = part(dataset::Stage::kDecode);
  spent_.transform = part(dataset::Stage::kTransform);
  ring_.add_read_time(std::exchange(spent_, {}));
  probe_is_due_ = true;
}

}  // namespace stoker::feed
