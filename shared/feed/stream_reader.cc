#include "shared/feed/stream_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "shared/base/log.h"
#include "shared/data/counter_rng.h"
#include "shared/ring/batch_layout.h"

namespace stoker::feed {
namespace {

using data::stream::RecordStream;
using data::stream::StreamPosition;
using data::stream::StreamRecord;
using queue::Tuple;

// The memory of an element. It counts as held until the last of its tensors is destroyed.
class ElementMemory {
 public:
  ElementMemory(std::shared_ptr<ElementLimit> limit, size_t bytes)
      : limit_(std::move(limit)),
        bytes_(bytes),
        data_(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow))) {}
  ~ElementMemory() {
    ::operator delete(data_, kAlignment);
    limit_->release(bytes_);
  }
  ElementMemory(const ElementMemory&) = delete;
  ElementMemory& operator=(const ElementMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{ring::kTensorAlignment};
  const std::shared_ptr<ElementLimit> limit_;
  const size_t bytes_;
  std::byte* const data_;  // null: out of memory
};

// Of a record in the list of sample errors, where each error of a ticket has another number.
uint64_t sample_number(uint64_t source, uint64_t record) {
  constexpr int kRecordBits = 40;
  return (source << kRecordBits) + record;
}

}  // namespace

Result<queue::Tensor> ElementReference::to_tensor() const {
  STOKER_ASSIGN_OR_RETURN(queue::Tensor tensor,
                          queue::Tensor::allocate(DType::kI64, queue::Shape({kValues})));
  const std::array<uint64_t, kValues> values{source, at.record, at.offset, end};
  std::memcpy(tensor.mutable_data(), values.data(), sizeof values);
  return tensor;
}

ElementReference ElementReference::of(const Tuple& element) {
  std::array<uint64_t, kValues> values;
  std::memcpy(values.data(), element.back().data(), sizeof values);
  return {.source = values[0], .at = {.offset = values[2], .record = values[1]}, .end = values[3]};
}

Status StreamFeed::Reader::enqueue_next(const std::stop_token& stop) {
  Status status = read_next(stop);
  if (!status.ok()) ended_ = true;
  return status;
}

Status StreamFeed::Reader::read_next(const std::stop_token& stop) {
  if (stream_ == nullptr) return open_next(stop);
  StreamRecord record;
  const auto more = stream_->next(record, stop);
  count_window(stream_->held_bytes());
  feed_.inputs_.set_complete(stream_->position().offset);
  if (!more) return handle_error(more.status(), record.at.record, stop);
  if (!*more) {
    close_input();
    return {};
  }
  auto element = decode(source_, record, stream_->position().offset, true, stop);
  if (!element) {
    if (element.status().code() != StatusCode::kCorrupt) return element.status();
    return feed_.report(
        element.status().with_context(stream_->input().name() + ": record " +
                                      std::to_string(record.at.record) + " at offset " +
                                      std::to_string(record.at.offset)),
        sample_number(source_, record.at.record), stop);
  }
  if (!*element) {
    ++feed_.dropped_;
    return {};
  }
  // Before it waits for space in the queue, while other readers reach the ends of unusable inputs.
  is_usable_ = true;
  feed_.unusable_inputs_ = 0;
  STOKER_RETURN_IF_ERROR(feed_.examples_->enqueue(std::move(**element), stop));
  ++feed_.records_;
  feed_.ring_.add_completed_samples(feed_.producer_, 1);
  return {};
}

Status StreamFeed::Reader::open_next(const std::stop_token& stop) {
  waits_for_name_ = true;
  const auto name = feed_.names_->dequeue(stop);
  waits_for_name_ = false;
  if (!name) return name.status();
  const auto source = static_cast<uint64_t>((*name)[0].value<int64_t>());
  Input from = feed_.input_of(source);
  if (feed_.inputs_.traits().can_continue) {
    from.next = from.read_to;
    from.identity = 0;  // it can become one of the other kind
  }
  STOKER_ASSIGN_OR_RETURN(auto stream, feed_.open_input(from));
  feed_.set_identity(source, stream->input().identity());
  is_usable_ = from.next.record > 0;
  {
    const std::lock_guard lock(mutex_);
    stream_ = std::move(stream);
    source_ = source;
  }
  --feed_.pending_names_;
  return stream_->skip_to(from.next, stop);
}

void StreamFeed::Reader::close_input(const Status& error) {
  feed_.dropped_bytes_ += stream_->dropped_bytes();
  const StreamPosition end = stream_->position();
  {
    const std::lock_guard lock(mutex_);
    closed_polls_ += stream_->input().polls();
    stream_.reset();
  }
  count_window(0);
  if (!is_usable_) ++feed_.unusable_inputs_;
  feed_.end_input(source_, end, error);
}

Status StreamFeed::Reader::handle_error(const Status& error, uint64_t record,
                                        const std::stop_token& stop) {
  if (error.code() != StatusCode::kCorrupt) return error;
  if (feed_.inputs_.traits().can_continue && stream_->is_incomplete()) {
    // Not an error of the record: it comes again.
    ++feed_.dropped_;
    log_warn("incomplete stream record dropped",
             {{"source", stream_->input().name()}, {"record", record}});
    close_input();
    return {};
  }
  const bool can_continue = stream_->can_continue();
  STOKER_RETURN_IF_ERROR(feed_.report(error, sample_number(source_, record), stop));
  if (can_continue) return {};
  log_warn("stream input skipped",
           {{"input", stream_->input().name()}, {"error", error.message()}});
  close_input(error);
  return {};
}

void StreamFeed::Reader::count_window(size_t bytes) {
  if (std::exchange(window_, bytes) != bytes) feed_.limit_->set_window(memory_, bytes);
}

Status StreamFeed::Reader::reserve(uint64_t bytes, bool may_wait, const std::stop_token& stop) {
  if (may_wait) return feed_.limit_->acquire(bytes, memory_, stop);
  feed_.limit_->add(bytes);
  return {};
}

Result<std::optional<Tuple>> StreamFeed::Reader::decode(uint64_t source, const StreamRecord& record,
                                                        uint64_t end, bool may_wait,
                                                        const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const bool kept, decoder_->read(record.bytes));
  if (!kept) return std::optional<Tuple>();
  std::vector<TensorSpec> own_spec;
  if (feed_.options_.queue == queue::QueueType::kPaddingFIFO)
    own_spec = decoder_->spec(decoder_->length());
  const std::vector<TensorSpec>& spec = own_spec.empty() ? feed_.spec_ : own_spec;
  const size_t bytes = element_bytes(spec);
  // The record itself until it is decoded.
  STOKER_RETURN_IF_ERROR(reserve(bytes + record.bytes.size(), may_wait, stop));
  const auto memory = std::make_shared<const ElementMemory>(feed_.limit_, bytes);
  if (memory->data() == nullptr)
    return Status(StatusCode::kOutOfMemory,
                  "no memory for a sample of " + std::to_string(bytes) + " bytes");
  std::vector<std::span<std::byte>> outputs;
  size_t offset = 0;
  for (const TensorSpec& tensor : spec) {
    outputs.emplace_back(memory->data() + offset, tensor.bytes());
    offset += ring::align_tensor(tensor.bytes());
  }
  const data::RandomKey key{.seed = feed_.options_.seed,
                            .epoch = 0,
                            .sample = data::mix64(source + 1) + record.at.record};
  const Status written = decoder_->write(key, outputs);
  feed_.limit_->release_bytes(record.bytes.size());
  STOKER_RETURN_IF_ERROR(written);
  if (feed_.options_.limits.any()) {
    const std::vector<std::span<const std::byte>> values(outputs.begin(), outputs.end());
    STOKER_RETURN_IF_ERROR(feed_.options_.limits.check(values));
  }
  Tuple element;
  if (feed_.options_.queue == queue::QueueType::kPriority)
    element.push_back(queue::Tensor::scalar<int64_t>(decoder_->priority()));
  for (size_t i = 0; i < spec.size(); ++i) {
    const std::shared_ptr<const std::byte> part(memory, outputs[i].data());
    STOKER_ASSIGN_OR_RETURN(
        queue::Tensor tensor,
        queue::Tensor::from_buffer(spec[i].dtype, to_shape(spec[i]), part, outputs[i].size()));
    element.push_back(std::move(tensor));
  }
  const ElementReference origin{.source = source, .at = record.at, .end = end};
  STOKER_ASSIGN_OR_RETURN(queue::Tensor reference, origin.to_tensor());
  element.push_back(std::move(reference));
  return std::optional(std::move(element));
}

bool StreamFeed::Reader::waits_for_input() const {
  if (ended_) return true;
  if (waits_for_name_) return feed_.inputs_.is_waiting() && feed_.pending_names_ == 0;
  const std::lock_guard lock(mutex_);
  return stream_ != nullptr && stream_->input().is_waiting();
}

std::string StreamFeed::Reader::input_name() const {
  const std::lock_guard lock(mutex_);
  return stream_ == nullptr ? "" : stream_->input().name();
}

size_t StreamFeed::Reader::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return stream_ == nullptr ? 0 : stream_->held_bytes();
}

uint64_t StreamFeed::Reader::polls() const {
  const std::lock_guard lock(mutex_);
  return closed_polls_ + (stream_ == nullptr ? 0 : stream_->input().polls());
}

}  // namespace stoker::feed
