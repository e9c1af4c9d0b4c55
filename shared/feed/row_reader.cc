#include "shared/feed/row_reader.h"

#include <optional>
#include <string>
#include <utility>

namespace stoker::feed {
namespace {

using Clock = std::chrono::steady_clock;
// Read time is added to the ring in such portions, and then it is looked whether reads are slow.
constexpr auto kCountEvery = std::chrono::milliseconds(5);
constexpr uint64_t kMeasureEvery = 16;  // samples: of one in so many the stages are measured

}  // namespace

Status RowReader::fill(Row& row) {
  const ring::Claim& claim = row.batch->claim();
  const ring::BatchLayout& layout = shapes_.of(claim.ticket);
  for (size_t tensor = 0; tensor < outputs_.size(); ++tensor)
    outputs_[tensor] = layout.row(claim.slot, tensor, row.index);
  const bool measures = rows_++ % kMeasureEvery == 0;
  std::optional<dataset::StageMeasurement> measurement;
  if (measures) measurement.emplace(stages_);
  const auto start = Clock::now();
  std::chrono::nanoseconds fetching{0};
  if (maybe_ahead_ && maybe_ahead_->settings().adapts && !row.maybe_bytes &&
      std::exchange(probe_is_due_, false))
    fetching = maybe_ahead_->fetch(row, std::nullopt);
  const Status status = read(row);
  const auto took = Clock::now() - start;
  if (row.maybe_bytes) maybe_ahead_->note_work(took - fetching);
  spent_.total += took;
  if (measures) measured_ += took;
  if (spent_.total >= kCountEvery) count();
  return status.with_context("neither a sample nor any of its " + std::to_string(kMaxStandIns) +
                             " stand-ins can be read; the last one");
}

Status RowReader::read(const Row& row) {
  const uint64_t ticket = row.batch->claim().ticket;
  Status status;
  for (uint64_t attempt = 0; attempt <= kMaxStandIns; ++attempt) {
    const auto planned = plan_.stand_in(ticket, row.index, attempt);  // 0: the sample itself
    const dataset::PrefetchedBytes::Held held(attempt == 0 ? row.maybe_bytes.get() : nullptr);
    status = dataset_.read(planned.sample, plan_.draw_key(planned), outputs_);
    if (status.ok()) break;
    ring_.report_bad_sample({.ticket = ticket,
                             .sample = planned.sample,
                             .code = status.code(),
                             .reason = status.message()});
  }
  return status;
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
