#include "daemon/train/device_engine.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include "daemon/train/batch_view.h"
#include "daemon/train/training_error.h"
#include "shared/base/log.h"

namespace stoker::train {
namespace {

using cuda::DeviceQueue;

// Graphs that are dropped after fewer replays do not pay for their capture.
constexpr uint64_t kMinReplays = 100;

// Identifies the shapes and dtypes of a batch. Each distinct value needs its own graphs.
std::string shape_of(const task::Batch& batch) {
  std::string text;
  for (const at::Tensor& tensor : batch) {
    for (const int64_t extent : tensor.sizes()) text += std::to_string(extent) + ' ';
    text += c10::toString(tensor.scalar_type());
  }
  return text;
}

// The tensors of a batch; those that follow each other in the buffer and in memory are one part.
std::vector<cuda::CopyPart> copy_parts(const feed::ReceivedBatch& batch) {
  std::vector<cuda::CopyPart> parts;
  const std::vector<TensorSpec>& sample = batch.layout.sample();
  for (size_t i = 0; i < sample.size(); ++i) {
    const std::span<const std::byte> bytes = batch.tensors[i];
    const size_t offset = batch.layout.offset(i);
    if (i > 0 && feed::BatchReceiver::is_copied(sample[i]) ==
                     feed::BatchReceiver::is_copied(sample[i - 1])) {
      cuda::CopyPart& last = parts.back();
      last.bytes = {last.bytes.data(), offset - last.offset + bytes.size()};
      assert(last.bytes.last(bytes.size()).data() == bytes.data());
    } else {
      parts.push_back({.offset = offset, .bytes = bytes});
    }
  }
  return parts;
}

}  // namespace

DeviceEngine::DeviceEngine(std::unique_ptr<DeviceQueue> queue,
                           std::vector<std::unique_ptr<PinnedMemory>> pinned,
                           DeviceEngineOptions options, Calls calls)
    : options_(options),
      // Leaves at least one slot to the workers.
      max_copying_(std::clamp<size_t>(options.slots - 1, 1, DeviceQueue::kBuffers)),
      calls_(std::move(calls)),
      pinned_(std::move(pinned)),
      queue_(std::move(queue)),
      schedule_(options.captures, /*awaits_agreement=*/!calls_.exchanges.empty()) {
  queue_->make_graph_events(calls_.sums.count);
}

DeviceEngine::~DeviceEngine() {
  try {
    queue_->synchronize();
  } catch (const std::exception& error) {
    log_warn("device unresponsive", {{"error", to_status(error).message()}});
  }
}

void DeviceEngine::run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) {
  poll();
  while (copying_.size() >= max_copying_) {
    queue_->wait_until_copied(copying_.front().slot);
    release_oldest();
  }
  const size_t buffer = batches_ % DeviceQueue::kBuffers;
  const size_t slot = batches_++ % options_.slots;
  queue_->start_copy(buffer, slot, copy_parts(batch));
  copying_.push_back({batch.ticket, slot});
  queue_->begin_work(slot);
  compute(buffer, batch, micro_batch);
  queue_->end_work(buffer);
}

void DeviceEngine::prepare(Prepared& prepared, const task::Batch& input, uint64_t ticket,
                           MicroBatchInfo micro_batch) const {
  prepared.batch = calls_.prepare(input, ticket, micro_batch);
  prepared.copies.resize(prepared.batch.size());
  for (size_t i = 0; i < prepared.batch.size(); ++i) {
    if (i < input.size() && prepared.batch[i].is_same(input[i])) continue;
    at::Tensor& copy = prepared.copies[i];
    if (!copy.defined()) copy = at::empty_like(prepared.batch[i], at::MemoryFormat::Contiguous);
    prepared.batch[i] = copy.copy_(prepared.batch[i]);
  }
}

void DeviceEngine::compute(size_t buffer, const feed::ReceivedBatch& received,
                           MicroBatchInfo micro_batch) {
  const auto* const bytes = static_cast<const std::byte*>(queue_->input(buffer));
  const task::Batch input = batch_view(received.layout, bytes, options_.device);
  // The shape after prepare() follows from that of the input.
  GraphSchedule::Part part{shape_of(input), buffer, micro_batch.is_first, micro_batch.is_last,
                           micro_batch.level};
  Prepared& prepared = prepared_[buffer][part.shape];
  const auto prepare_batch = [this, &prepared, input, ticket = received.ticket, micro_batch] {
    prepare(prepared, input, ticket, micro_batch);
  };
  const auto work = [this, &prepared, micro_batch] { calls_.work(prepared.batch, micro_batch); };
  if (micro_batch.is_instrumented) {
    make_room_for_eager_work();
    return queue_->call([this, prepare_batch, work, is_last = micro_batch.is_last] {
      prepare_batch();
      work();
      if (is_last) calls_.exchange();
    });
  }
  queue_->submit(prepare_batch);
  GraphSchedule::Mode mode = schedule_.next(part);
  if (mode == GraphSchedule::Mode::kReplay) ++replays_since_drop_;
  mode = run_part(part, mode, work);
  if (micro_batch.is_last) {
    if (mode != GraphSchedule::Mode::kPlain) start_sums();
    for (const Exchange& each : calls_.exchanges) {
      queue_->call([this, &each] { was_exchanged_ = each.run(); });
      if (!was_exchanged_) return;
      ++part.exchange;
      if (each.work) mode = run_part(part, mode, each.work);
    }
  }
  if (mode == GraphSchedule::Mode::kCapture)
    log_info("cuda graph captured",
             {{"shape", part.shape}, {"buffer", part.buffer}, {"graphs", schedule_.graphs()}});
}

GraphSchedule::Mode DeviceEngine::run_part(const GraphSchedule::Part& part,
                                           GraphSchedule::Mode mode, const cuda::Work& work) {
  switch (mode) {
    case GraphSchedule::Mode::kPlain:
      make_room_for_eager_work();
      queue_->submit(work);
      break;
    case GraphSchedule::Mode::kReplay:
      schedule_.graph(part).replay();
      break;
    case GraphSchedule::Mode::kCapture:
      if (!capture(part, work)) mode = GraphSchedule::Mode::kPlain;
      break;
  }
  return mode;
}

bool DeviceEngine::capture(const GraphSchedule::Part& part, const cuda::Work& work) {
  try {
    // A capture cannot use memory that eager steps left in the cache.
    queue_->release_cached_memory();
    const uint64_t reserved = queue_->usage().reserved_bytes;
    schedule_.captured(part, queue_->capture([this, work] {
      is_capturing_ = true;
      const auto end = c10::make_scope_exit([this] { is_capturing_ = false; });
      work();
    }));
    graph_bytes_ += queue_->usage().reserved_bytes - reserved;
  } catch (const c10::Error& error) {
    // Also without memory: a capture needs more than an eager step.
    disable_capture(error.what_without_backtrace());
    queue_->release_cached_memory();
    queue_->submit(work);
    return false;
  }
  schedule_.graph(part).replay();
  return true;
}

void DeviceEngine::on_gradients_complete(size_t sum) {
  if (is_capturing_)
    queue_->record_graph_event(sum);
  else
    calls_.sums.start(sum);
}

// Those of the last replay. Host code that a graph does not contain.
void DeviceEngine::start_sums() {
  if (calls_.sums.count == 0) return;
  for (size_t sum = 0; sum < calls_.sums.count; ++sum)
    queue_->submit_sum(sum, [this, sum] { calls_.sums.start(sum); });
  queue_->wait_for_sums();
}

StepEngine::CaptureVote DeviceEngine::capture_vote() const {
  return {.is_ready = schedule_.is_ready(), .has_given_up = schedule_.has_given_up()};
}

void DeviceEngine::stop_capturing(const std::string& reason) {
  if (schedule_.has_given_up()) return;
  const bool has_graphs = schedule_.graphs() > 0;
  if (has_graphs) queue_->wait_for_work(DeviceQueue::Next::kDropGraphs);
  disable_capture(reason);
  if (has_graphs) queue_->release_cached_memory();
}

void DeviceEngine::disable_capture(const std::string& reason) {
  schedule_.give_up();
  graph_bytes_ = 0;
  log_warn("cuda graph capture disabled",
           {{"reason", reason.substr(0, reason.find('\n'))},
            {"hint", "train.cuda_graphs: never disables the attempt"}});
}

// Eager work cannot use the memory of the graphs and needs about as much again.
void DeviceEngine::make_room_for_eager_work() {
  if (schedule_.graphs() == 0) return;
  const cuda::DeviceUsage use = queue_->usage();
  const uint64_t used = graph_bytes_ + use.allocated_bytes;
  const uint64_t cached = use.reserved_bytes > used ? use.reserved_bytes - used : 0;
  const uint64_t available = queue_->free_bytes() + cached;
  if (available >= graph_bytes_) return;
  queue_->wait_for_work(DeviceQueue::Next::kDropGraphs);
  if (has_dropped_graphs_ && replays_since_drop_ < kMinReplays) {
    disable_capture("not enough memory for graphs and eager steps in turn");
  } else {
    log_info("cuda graphs dropped",
             {{"reason", "an eager step needs their memory"}, {"available_bytes", available}});
    schedule_.drop_graphs();
    has_dropped_graphs_ = true;
  }
  graph_bytes_ = 0;
  replays_since_drop_ = 0;
  queue_->release_cached_memory();
}

void DeviceEngine::read(const std::vector<at::Tensor>& scalars, OnRead on_read) {
  assert(scalars.size() <= DeviceQueue::kMaxValues);
  while (reading_.size() == DeviceQueue::kReads) {
    queue_->wait_until_read(reading_.front().read);
    deliver_oldest();
  }
  const size_t read = reads_++ % DeviceQueue::kReads;
  const auto count = static_cast<int64_t>(scalars.size());
  at::Tensor values = at::from_blob(queue_->read_buffer(read), {count},
                                    at::TensorOptions().dtype(at::kDouble).device(options_.device));
  queue_->submit([scalars, values] {
    std::vector<at::Tensor> numbers;
    for (const at::Tensor& scalar : scalars) numbers.push_back(scalar.detach().to(at::kDouble));
    at::Tensor out = values;
    at::stack_out(out, numbers);
  });
  queue_->start_read(read, scalars.size());
  reading_.push_back({read, std::move(on_read)});
}

// Only when its copy is complete.
void DeviceEngine::release_oldest() {
  const Copying oldest = copying_.front();
  copying_.pop_front();
  calls_.release(oldest.ticket);
}

// Only when its read is complete.
void DeviceEngine::deliver_oldest() {
  const Reading oldest = std::move(reading_.front());
  reading_.pop_front();
  oldest.on_read(queue_->values(oldest.read));
}

bool DeviceEngine::poll() {
  while (!copying_.empty() && queue_->is_copied(copying_.front().slot)) release_oldest();
  while (!reading_.empty() && queue_->is_read(reading_.front().read)) deliver_oldest();
  return !copying_.empty() || !reading_.empty();
}

void DeviceEngine::drop_captured_work() {
  schedule_.restart();
  graph_bytes_ = 0;
  replays_since_drop_ = 0;
  queue_->release_cached_memory();
}

void DeviceEngine::synchronize() {
  queue_->wait_for_work(DeviceQueue::Next::kUseState);  // which waited for the copies
  while (!copying_.empty()) release_oldest();
  while (!reading_.empty()) deliver_oldest();
}

}  // namespace stoker::train
