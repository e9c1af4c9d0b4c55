#include "shared/feed/indexed_rows.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <string>
#include <utility>

#include "shared/base/thread_registry.h"
#include "shared/feed/sample_reader.h"

namespace stoker::feed {

IndexedRows::IndexedRows(const data::Dataset& data, const data::order::SamplePlan& plan,
                         ring::ShmRing& ring, ring::ProducerId producer)
    : data_(data),
      plan_(plan),
      ring_(ring),
      producer_(producer),
      shapes_(data, plan),
      planned_(plan.options().batch) {
  assert(data.size() + data::order::kStreamPositions == plan.options().size);
  assert(ring.layout().batch() == plan.options().batch && "the ring has another batch size");
}

void IndexedRows::start(int threads, Coordinator& coordinator) {
  for (int i = 0; i < threads; ++i)
    coordinator.start(std::make_unique<ThreadRecord>("worker-" + std::to_string(i), "read samples"),
                      [this](const std::stop_token& stop) { return read_rows(stop); });
}

std::span<const uint64_t> IndexedRows::open(const ring::Claim& claim) {
  plan_.at(claim.ticket, 0, planned_);
  stream_rows_.clear();
  {
    const std::lock_guard lock(mutex_);
    assert(is_finished());
    batch_.open(claim, 0, claim.ticket);
    rows_.clear();
    next_ = 0;
    for (uint64_t row = 0; row < planned_.size(); ++row)
      (planned_[row].sample < data_.size() ? rows_ : stream_rows_).push_back(row);
  }
  opened_.notify_all();
  return stream_rows_;
}

void IndexedRows::cancel() {
  const std::lock_guard lock(mutex_);
  rows_.resize(next_);
  if (failure_.ok()) failure_ = Status(StatusCode::kCancelled, "the batch is not needed");
}

Status IndexedRows::finish(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!finished_.wait(lock, stop, [this] { return is_finished(); })) {
    lock.unlock();
    cancel();
    lock.lock();
    finished_.wait(lock, [this] { return is_finished(); });
  }
  return failure_;
}

uint64_t IndexedRows::stream_sample(uint64_t record) const {
  return data_.size() + record % data::order::kStreamPositions;
}

Status IndexedRows::read_rows(const std::stop_token& stop) {
  SampleReader reader(ring_, data_, plan_, shapes_, nullptr);
  std::unique_lock lock(mutex_);
  while (opened_.wait(lock, stop, [this] { return next_ < rows_.size(); })) {
    RowTask task{.batch = &batch_, .first = rows_[next_], .count = 0};
    // A reader fills adjacent rows.
    while (next_ < rows_.size() && rows_[next_] == task.first + task.count &&
           task.count < reader.group_rows()) {
      ++task.count;
      ++next_;
    }
    reading_ += task.count;
    lock.unlock();
    Status status = catch_exceptions([&] { return reader.fill(task); });
    ring_.add_completed_samples(producer_, task.count);
    lock.lock();
    reading_ -= task.count;
    if (!status.ok()) {
      rows_.resize(next_);
      failure_ = status;
    }
    if (is_finished()) finished_.notify_all();
    if (!status.ok()) return status;
  }
  return Status(StatusCode::kCancelled, "reading samples was stopped");
}

}  // namespace stoker::feed
