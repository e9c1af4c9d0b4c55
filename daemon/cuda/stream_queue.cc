#include "daemon/cuda/stream_queue.h"

#include <string>
#include <utility>

namespace stoker::cuda {

StreamQueue::StreamQueue(std::unique_ptr<DeviceStreams> streams, size_t slot_bytes, size_t slots)
    : streams_(std::move(streams)),
      device_values_(
          static_cast<double*>(streams_->allocate(kReads * kMaxValues * sizeof(double)))),
      host_values_(streams_->allocate_host(kReads * kMaxValues)) {
  for (void*& input : inputs_) input = streams_->allocate(slot_bytes);
  for (size_t slot = 0; slot < slots; ++slot) copied_.push_back(streams_->make_event("copied"));
  for (Event& event : work_done_) event = streams_->make_event("work on buffer done");
  for (Event& event : read_) event = streams_->make_event("read");
  for (size_t i = 0; i < all_done_.size(); ++i)
    all_done_[i] = streams_->make_event(std::string(kNextNames[i]));
  sums_started_ = streams_->make_event("start of sums");
  for (size_t i = 0; i < kMaxTimedItems; ++i) {
    started_[i] = streams_->make_event("started", DeviceStreams::EventUse::kTime);
    finished_[i] = streams_->make_event("finished", DeviceStreams::EventUse::kTime);
  }
}

void StreamQueue::start_copy(size_t buffer, size_t slot, std::span<const CopyPart> parts) {
  streams_->wait(Stream::kCopy, work_done_[buffer]);
  for (const CopyPart& part : parts)
    streams_->copy_to_device(static_cast<std::byte*>(inputs_[buffer]) + part.offset, part.bytes);
  streams_->record(copied_[slot], Stream::kCopy);
}

bool StreamQueue::is_copied(size_t slot) { return streams_->is_complete(copied_[slot]); }

void StreamQueue::wait_until_copied(size_t slot) { streams_->synchronize(copied_[slot]); }

void StreamQueue::begin_work(size_t slot) {
  streams_->wait(Stream::kWork, copied_[slot]);
  add_elapsed_time();
  streams_->record(started_[num_work_items_ % kMaxTimedItems], Stream::kWork);
}

void StreamQueue::end_work(size_t buffer) {
  streams_->record(finished_[num_work_items_++ % kMaxTimedItems], Stream::kWork);
  streams_->record(work_done_[buffer], Stream::kWork);
}

void StreamQueue::make_graph_events(size_t count) {
  for (size_t i = 0; i < count; ++i)
    graph_events_.push_back(
        streams_->make_event("gradients complete", DeviceStreams::EventUse::kGraph));
}

void StreamQueue::submit_sum(size_t event, Work work) {
  streams_->wait(Stream::kSums, graph_events_[event]);
  streams_->submit_sums(std::move(work));
}

void StreamQueue::wait_for_sums() {
  streams_->record(sums_started_, Stream::kSums);
  streams_->wait(Stream::kWork, sums_started_);
}

void StreamQueue::start_read(size_t read, size_t count) {
  counts_[read] = count;
  streams_->copy_to_host(host_values_.data() + read * kMaxValues, read_buffer(read), count);
  streams_->record(read_[read], Stream::kWork);
}

std::span<const double> StreamQueue::values(size_t read) {
  return host_values_.subspan(read * kMaxValues, counts_[read]);
}

void StreamQueue::wait_for_work(Next next) {
  const Event done = all_done_[static_cast<size_t>(next)];
  streams_->record(done, Stream::kWork);
  streams_->synchronize(done);
}

DeviceUsage StreamQueue::usage() {
  DeviceUsage usage = streams_->memory();
  usage.works = usage_.works;
  usage.work_ms = usage_.work_ms;
  return usage;
}

// Adds the time of the work item whose events are reused next. An unfinished item is not counted.
void StreamQueue::add_elapsed_time() {
  const size_t next = num_work_items_ % kMaxTimedItems;
  if (num_work_items_ < kMaxTimedItems || !streams_->is_complete(finished_[next])) return;
  usage_.work_ms += streams_->elapsed_ms(started_[next], finished_[next]);
  ++usage_.works;
}

}  // namespace stoker::cuda
