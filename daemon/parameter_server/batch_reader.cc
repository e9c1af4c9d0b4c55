#include "daemon/parameter_server/batch_reader.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "shared/base/exception_status.h"
#include "shared/base/thread_registry.h"

namespace stoker::parameter_server {
namespace {

constexpr ThreadActivity kPrefetch{.operation = "read the next batch"};
constexpr ThreadActivity kWaitForTicketToRead{.operation = "wait for a ticket", .is_waiting = true};
constexpr ThreadActivity kWaitForBatch{.operation = "wait for the batch", .is_waiting = true};

}  // namespace

BatchReader::BatchReader(const data::Dataset& data, const data::order::SamplePlan& plan)
    : data_(data), plan_(plan), shapes_(data, plan) {}

Result<feed::ReceivedBatch> BatchReader::read(uint64_t ticket, const std::stop_token& stop) {
  bool is_prefetched = false;
  Status status;
  {
    std::unique_lock lock(mutex_);
    if (wanted_ == ticket) {
      const ScopedActivity waiting(kWaitForBatch);
      if (!changed_.wait(lock, stop, [&] { return has_prefetched(ticket); }))
        return Status(StatusCode::kCancelled,
                      "reading batch " + std::to_string(ticket) + " was stopped");
      is_prefetched = true;
      wanted_.reset();
      prefetched_.reset();
      std::swap(memory_, next_memory_);
      status = std::move(next_status_);
    }
  }
  if (!is_prefetched) status = fill(memory_, ticket);
  STOKER_RETURN_IF_ERROR(status);
  const ring::BatchLayout& layout = shapes_.of(ticket);
  feed::ReceivedBatch batch{.ticket = ticket, .layout = layout, .tensors = {}};
  const std::span<std::byte> slot(memory_.data(), layout.slot_bytes());
  for (size_t i = 0; i < layout.sample().size(); ++i)
    batch.tensors.emplace_back(layout.rows(slot, i, 0, layout.batch()));
  return batch;
}

Status BatchReader::prefetch(uint64_t ticket) {
  try {
    if (!has_thread_)
      threads_.start(std::make_unique<ThreadRecord>("prefetch batches", "read the next batch"),
                     [this](const std::stop_token& stop) { return run(stop); });
  } catch (const std::system_error& error) {
    return to_status(error).with_context("prefetch batches");
  }
  has_thread_ = true;
  const std::lock_guard lock(mutex_);
  wanted_ = ticket;
  changed_.notify_all();
  return {};
}

bool BatchReader::has_next() {
  const std::lock_guard lock(mutex_);
  return wanted_ && has_prefetched(*wanted_);
}

bool BatchReader::has_prefetched(uint64_t ticket) const {
  return prefetched_ == ticket && !is_reading_;
}

Status BatchReader::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    {
      const ScopedActivity waiting(kWaitForTicketToRead);
      if (!changed_.wait(lock, stop, [this] { return wanted_ && wanted_ != prefetched_; }))
        return {};
    }
    const uint64_t ticket = *wanted_;
    prefetched_ = ticket;
    is_reading_ = true;
    lock.unlock();
    Status status = catch_exceptions([&] {
      const ScopedActivity reading(kPrefetch);
      return fill(next_memory_, ticket);
    });
    lock.lock();
    next_status_ = std::move(status);
    is_reading_ = false;
    changed_.notify_all();
  }
}

Status BatchReader::fill(std::vector<std::byte>& memory, uint64_t ticket) const {
  const ring::BatchLayout& layout = shapes_.of(ticket);
  memory.resize(std::max(memory.size(), layout.slot_bytes()));
  const std::span<std::byte> slot(memory.data(), layout.slot_bytes());
  const uint64_t rows = layout.batch();
  std::vector<data::order::PlannedSample> planned(rows);
  plan_.at(ticket, 0, planned);
  std::vector<data::SampleReadRequest> samples;
  for (const data::order::PlannedSample& each : planned)
    samples.push_back({.sample = each.sample, .random_key = plan_.random_key(each)});
  std::vector<std::span<std::byte>> outputs;
  for (size_t i = 0; i < layout.sample().size(); ++i)
    outputs.push_back(layout.rows(slot, i, 0, rows));
  const data::BatchReadResult read = data_.read_batch(samples, outputs);
  if (read.status.code() == StatusCode::kCancelled) return read.status;
  if (read.status.code() == StatusCode::kCorrupt)
    return read.status.with_context("ticket " + std::to_string(ticket) + ", sample " +
                                    std::to_string(samples[read.good].sample));
  // Of the process that reads, which another start may not have.
  if (!read.status.ok()) return read.status.with_context("ticket " + std::to_string(ticket));
  return {};
}

}  // namespace stoker::parameter_server
