#include "shared/feed/stream_feed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "shared/base/deadline.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/data/record/sample_spec.h"
#include "shared/feed/stream_reader.h"
#include "shared/ring/batch_layout.h"

namespace stoker::feed {
namespace {

using data::stream::RecordStream;
using data::stream::StreamInputs;
using data::stream::StreamPosition;
using data::stream::StreamRecord;
using queue::Tuple;

constexpr auto kQueueWait = std::chrono::milliseconds(100);
// How often the thread that takes batches checks whether all readers wait: the delay of a batch when
// a stream runs dry.
constexpr auto kSettleInterval = std::chrono::milliseconds(5);
constexpr int64_t kQueuedNames = 32;              // as in TensorFlow's string_input_producer
constexpr int64_t kQueuedProducers = 4096 + 256;  // all names, and those that connect again
// restore() reports progress at least this often.
constexpr uint64_t kProgressBytes = uint64_t{16} << 20;
// Inputs that need not be remembered any more are removed when their number may have doubled.
constexpr size_t kMinFinished = 64;

// Whether the elements of a batch depend on the number of elements in the queue.
bool takes_by_size(queue::QueueType type) {
  switch (type) {
    case queue::QueueType::kRandomShuffle:
    case queue::QueueType::kPriority:
      return true;
    case queue::QueueType::kFIFO:
    case queue::QueueType::kPaddingFIFO:
      return false;
  }
  return false;
}

std::vector<uint64_t> numbers_below(uint64_t end) {
  std::vector<uint64_t> numbers(end);
  std::iota(numbers.begin(), numbers.end(), uint64_t{0});
  return numbers;
}

}  // namespace

std::string_view to_string(StreamStatus::Activity activity) {
  switch (activity) {
    case StreamStatus::Activity::kReading:
      return "reading";
    case StreamStatus::Activity::kWaiting:
      return "waiting";
    case StreamStatus::Activity::kBlocked:
      return "blocked";
    case StreamStatus::Activity::kEnded:
      return "ended";
  }
  return "?";
}

// ---- Construction

StreamFeed::StreamFeed(data::stream::StreamInputs& inputs, const StreamFeedOptions& options,
                       const data::stream::Framing& framing, ring::ShmRing& ring,
                       ring::ProducerId producer, RecordState record_state)
    : inputs_(inputs),
      options_(options),
      framing_(framing),
      ring_(ring),
      producer_(producer),
      record_state_(std::move(record_state)),
      batch_(ring.layout().batch()),
      all_rows_(numbers_below(batch_)),
      spec_(ring.layout().sample()),
      limit_(std::make_shared<ElementLimit>(
          options.max_bytes, static_cast<uint64_t>(options.min_after_dequeue) + batch_)) {}

StreamFeed::~StreamFeed() = default;

Result<std::unique_ptr<StreamFeed>> StreamFeed::create(const data::DatasetRequest& request,
                                                       data::stream::StreamInputs& inputs,
                                                       const StreamFeedOptions& options,
                                                       ring::ShmRing& ring,
                                                       ring::ProducerId producer,
                                                       RecordState record_state) {
  STOKER_ASSIGN_OR_RETURN(data::stream::Framing framing, data::stream::framing_of(request));
  framing.needs_ends = inputs.traits().can_continue;
  std::unique_ptr<StreamFeed> feed(
      new StreamFeed(inputs, options, framing, ring, producer, std::move(record_state)));
  STOKER_RETURN_IF_ERROR(feed->check_limits(request));
  STOKER_RETURN_IF_ERROR(feed->make_readers(request));
  STOKER_RETURN_IF_ERROR(feed->make_queues());
  return feed;
}

size_t StreamFeed::element_bytes(std::span<const TensorSpec> spec) {
  size_t bytes = 0;
  for (const TensorSpec& tensor : spec) bytes += ring::align_tensor(tensor.bytes());
  return std::max(bytes, ring::kTensorAlignment);
}

queue::Shape StreamFeed::to_shape(const TensorSpec& spec) {
  return queue::Shape(std::span<const int64_t>(spec.shape));
}

Status StreamFeed::check_limits(const data::DatasetRequest& request) const {
  const auto invalid = [&request](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, request.key("stream.") + what);
  };
  const config::FieldNames* const fields = request.config.fields();
  if (options_.queue == queue::QueueType::kPriority &&
      (fields == nullptr || fields->priority.empty()))
    return invalid("queue: priority requires fields.priority");
  const uint64_t needed = static_cast<uint64_t>(options_.min_after_dequeue) + batch_;
  if (static_cast<uint64_t>(options_.capacity) < needed)
    return invalid("capacity: " + std::to_string(options_.capacity) +
                   " is less than min_after_dequeue and a batch (" + std::to_string(needed) + ")");
  const uint64_t bytes = element_bytes(spec_);
  if (options_.min_after_dequeue == 0 || bytes <= options_.max_bytes / needed) return {};
  return invalid("min_after_dequeue: " + std::to_string(needed) + " samples of " +
                 std::to_string(bytes) + " bytes are more than the " +
                 std::to_string(options_.max_bytes >> 20) + " MiB that a stream holds");
}

Status StreamFeed::make_readers(const data::DatasetRequest& request) {
  for (int i = 0; i < options_.num_threads; ++i) {
    STOKER_ASSIGN_OR_RETURN(auto decoder, data::stream::RecordDecoder::make(request));
    readers_.push_back(std::make_unique<Reader>(*this, std::move(decoder)));
  }
  const data::stream::RecordDecoder& decoder = readers_.front()->decoder();
  if (decoder.spec(0) != spec_)
    return Status(StatusCode::kMismatch, "the ring has another sample layout than the stream");
  const std::vector<TensorSpec> step = decoder.spec(1);
  for (size_t i = 0; i < spec_.size(); ++i) is_per_step_.push_back(step[i] != spec_[i]);
  return {};
}

Status StreamFeed::make_queues() {
  queue::QueueOptions names{
      .name = "file-names",
      // Producers wait in it for a reader. The thread that accepts them must not wait for space.
      .capacity = inputs_.traits().can_continue ? kQueuedProducers : kQueuedNames,
      .components = {{.name = "", .dtype = DType::kI64, .shape = queue::Shape()}}};
  STOKER_ASSIGN_OR_RETURN(names_, queue::Queue::create(std::move(names)));
  queue::QueueOptions examples{.name = "examples",
                               .type = options_.queue,
                               .capacity = options_.capacity,
                               .min_after_dequeue = options_.min_after_dequeue};
  if (options_.queue == queue::QueueType::kRandomShuffle) examples.seed = options_.seed;
  for (size_t i = 0; i < spec_.size(); ++i) {
    queue::Shape shape = to_shape(spec_[i]);
    if (options_.queue == queue::QueueType::kPaddingFIFO && is_per_step_[i])
      shape[0] = queue::kUnknownExtent;
    examples.components.push_back({.name = "", .dtype = spec_[i].dtype, .shape = shape});
  }
  examples.components.push_back(
      {.name = "", .dtype = DType::kI64, .shape = queue::Shape({ElementReference::kValues})});
  STOKER_ASSIGN_OR_RETURN(examples_, queue::Queue::create(std::move(examples)));
  return {};
}

void StreamFeed::start(Coordinator& coordinator) {
  runners_.add_queue_runner(*names_,
                            {[this](const std::stop_token& stop) { return enqueue_name(stop); }});
  std::vector<queue::EnqueueOperation> operations;
  for (const auto& reader : readers_)
    operations.push_back(
        [&reader = *reader](const std::stop_token& stop) { return reader.enqueue_next(stop); });
  runners_.add_queue_runner(*examples_, std::move(operations));
  runners_.start_queue_runners(&coordinator);
  coordinator.start(std::make_unique<ThreadRecord>("stream-batches", "fill batches"),
                    [this, &coordinator](const std::stop_token& stop) {
                      const Status status = fill_ring(stop);
                      // The readers have nothing to do any more.
                      if (status.code() == StatusCode::kClosed) coordinator.request_stop();
                      return status;
                    });
}

// ---- File names and inputs

Status StreamFeed::enqueue_name(const std::stop_token& stop) {
  uint64_t number = 0;
  if (!resumed_.empty()) {
    number = resumed_.front();
    resumed_.pop_front();
  } else {
    STOKER_ASSIGN_OR_RETURN(auto item, inputs_.next(stop));
    if (!item) return Status(StatusCode::kClosed, "there are no further inputs");
    number = add_input(*std::move(item));
  }
  ++pending_names_;
  return names_->enqueue(Tuple{queue::Tensor::scalar(static_cast<int64_t>(number))}, stop);
}

// Before it can be read, so that a state that has its elements has the input.
uint64_t StreamFeed::add_input(StreamInputs::Item item) {
  const std::lock_guard lock(inputs_mutex_);
  if (inputs_.traits().can_continue)
    for (const auto& [number, input] : known_inputs_)
      if (input.name == item.name) return number;
  known_inputs_.emplace(next_input_,
                        Input{.name = std::move(item.name), .identity = item.identity});
  return next_input_++;
}

StreamFeed::Input StreamFeed::input_of(uint64_t number) const {
  const std::lock_guard lock(inputs_mutex_);
  return known_inputs_.at(number);
}

// At its start or at from.next.
Result<std::unique_ptr<RecordStream>> StreamFeed::open_input(const Input& from) {
  STOKER_ASSIGN_OR_RETURN(auto input, inputs_.open(from.name, from.next));
  if (from.identity != 0)
    STOKER_RETURN_IF_ERROR(input->check_identity(from.next.offset, from.identity));
  const StreamPosition start = inputs_.traits().starts_at_offset ? from.next : StreamPosition();
  return std::make_unique<RecordStream>(framing_, std::move(input), start);
}

void StreamFeed::set_identity(uint64_t number, uint64_t identity) {
  const std::lock_guard lock(inputs_mutex_);
  known_inputs_.at(number).identity = identity;
}

// After all of its elements were enqueued.
void StreamFeed::end_input(uint64_t number, const StreamPosition& at, const Status& error) {
  const std::lock_guard lock(inputs_mutex_);
  Input& input = known_inputs_.at(number);
  input.read_to = at;
  input.ended = !inputs_.traits().can_continue;
  if (!input.ended) inputs_.close(input.name, at, error);
}

// ---- Errors of records

Status StreamFeed::report(const Status& error, uint64_t sample, const std::stop_token& stop) {
  if (options_.on_sample_error == config::OnSampleError::kFail) return error;
  ++errors_;
  if (options_.maybe_indexed != nullptr) sample = options_.maybe_indexed->stream_sample(sample);
  std::unique_lock lock(errors_mutex_);
  if (!errors_passed_.wait(lock, stop,
                           [this] { return pending_errors_.size() < kMaxPendingErrors; }))
    return Status(StatusCode::kCancelled, "stopped while errors of records were reported");
  pending_errors_.push_back({.status = error, .sample = sample});
  return {};
}

// The ring accepts reports only of a ticket that is claimed.
bool StreamFeed::pass_errors_to_ring(uint64_t ticket) {
  std::deque<RecordError> errors;
  {
    const std::lock_guard lock(errors_mutex_);
    errors.swap(pending_errors_);
  }
  if (errors.empty()) return false;
  errors_passed_.notify_all();
  for (const RecordError& error : errors)
    ring_.report_sample_error({.ticket = ticket,
                               .sample = error.sample,
                               .code = error.status.code(),
                               .reason = error.status.message()});
  return true;
}

// ---- Restoring

Status StreamFeed::restore(const StreamState& state, const std::stop_token& stop) {
  const auto corrupt = [](const std::string& what) {
    return Status(StatusCode::kCorrupt, "state of the stream: " + what);
  };
  {
    const std::lock_guard lock(inputs_mutex_);
    next_input_ = state.next_source;
    for (const StreamState::Source& source : state.sources) {
      const Input input{.name = source.name,
                        .next = source.next,
                        .identity = source.identity,
                        .ended = source.ended,
                        .read_to = source.next};
      if (source.number >= next_input_ || !known_inputs_.emplace(source.number, input).second)
        return corrupt("input " + std::to_string(source.number) + " is not allowed");
      if (!source.ended && !inputs_.traits().can_continue) resumed_.push_back(source.number);
    }
    for (const StreamState::Element& element : state.elements)
      if (!known_inputs_.contains(element.source))
        return corrupt("input " + std::to_string(element.source) + " of an element is missing");
  }
  std::ranges::sort(resumed_);
  if (!state.elements.empty() && !inputs_.traits().can_be_read_again)
    return Status(StatusCode::kInvalidArgument,
                  input_of(state.elements.front().source).name +
                      ": the stream cannot be continued, because " +
                      std::to_string(state.elements.size()) +
                      " records that were in the queue cannot be read again; start a new run");
  // Each input is read once, from front to back.
  std::vector<size_t> order(state.elements.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    return std::pair(state.elements[i].source, state.elements[i].at.offset);
  });
  std::vector<Tuple> tuples(order.size());
  for (auto first = order.begin(); first != order.end();) {
    const uint64_t source = state.elements[*first].source;
    const auto last = std::find_if(first, order.end(),
                                   [&](size_t i) { return state.elements[i].source != source; });
    STOKER_RETURN_IF_ERROR(reread(state, std::span(first, last), tuples, stop));
    first = last;
  }
  STOKER_RETURN_IF_ERROR(examples_->restore(std::move(tuples), state.generator));
  state_ = state;
  kept_finished_ = state_.finished.size();
  return {};
}

// The elements of one input, in the order of their offsets.
Status StreamFeed::reread(const StreamState& state, std::span<const size_t> elements,
                          std::vector<Tuple>& tuples, const std::stop_token& stop) {
  const uint64_t source = state.elements[elements.front()].source;
  Input from = input_of(source);
  if (inputs_.traits().starts_at_offset) from.next = state.elements[elements.front()].at;
  STOKER_ASSIGN_OR_RETURN(const auto stream, open_input(from));
  for (const size_t i : elements) {
    const StreamPosition at = state.elements[i].at;
    const auto changed = [&](const std::string& what) {
      return Status(StatusCode::kCorrupt, from.name + ": record " + std::to_string(at.record) +
                                              " at offset " + std::to_string(at.offset) + " " +
                                              what +
                                              "; has the file changed since the checkpoint?");
    };
    // In parts, because much may have to be decompressed.
    for (;;) {
      const uint64_t part = stream->position().offset + kProgressBytes;
      if (part >= at.offset) break;
      STOKER_RETURN_IF_ERROR(stream->skip_to({.offset = part, .record = at.record}, stop));
      ring_.add_completed_samples(producer_, 1);
    }
    STOKER_RETURN_IF_ERROR(stream->skip_to(at, stop));
    StreamRecord record;
    const auto more = stream->next(record, stop);
    if (!more && more.status().code() != StatusCode::kCorrupt) return more.status();
    if (!more || !*more || record.at != at) return changed("is not there");
    auto element = readers_.front()->decode(source, record, stream->position().offset, false, stop);
    if (!element && element.status().code() != StatusCode::kCorrupt) return element.status();
    if (!element || !*element) return changed("cannot be used");
    tuples[i] = std::move(**element);
    ring_.add_completed_samples(producer_, 1);
  }
  return {};
}

// ---- Batches

Status StreamFeed::fill_ring(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto claim = ring_.claim(producer_, kQueueWait);
    if (!claim && claim.status().code() == StatusCode::kTimedOut) continue;
    if (!claim) return claim.status();
    if (const Status status = fill(*claim, stop); !status.ok()) {
      ring_.abandon(producer_, *claim);
      return status;
    }
    ring_.publish(producer_, *claim);
  }
  return Status(StatusCode::kCancelled, "filling batches was stopped");
}

Status StreamFeed::fill(const ring::Claim& claim, const std::stop_token& stop) {
  IndexedRows* const others = options_.maybe_indexed;
  const std::span<const uint64_t> rows = others == nullptr ? all_rows_ : others->open(claim);
  Status filled = fill_from_stream(claim, rows, stop);
  if (others != nullptr) {
    if (!filled.ok()) others->cancel();
    const Status read = others->finish(stop);
    if (filled.ok()) filled = read;
  }
  STOKER_RETURN_IF_ERROR(filled);
  return record_state_(claim.ticket, state_);
}

Status StreamFeed::fill_from_stream(const ring::Claim& claim, std::span<const uint64_t> rows,
                                    const std::stop_token& stop) {
  if (rows.empty()) {
    pass_errors_to_ring(claim.ticket);
    return {};
  }
  const auto batch = take_batch(claim.ticket, rows.size(), stop);
  pass_errors_to_ring(claim.ticket);
  if (!batch) {
    // A stop closes the queue, too.
    if (batch.status().code() == StatusCode::kClosed && !stop.stop_requested() && !ring_.closed())
      STOKER_RETURN_IF_ERROR(end_stream(claim.ticket));
    return batch.status();
  }
  write_rows(*batch, rows, claim.slot);
  return {};
}

Result<Tuple> StreamFeed::take_batch(uint64_t ticket, size_t count, const std::stop_token& stop) {
  const auto rows = static_cast<int64_t>(count);
  const bool by_size = takes_by_size(options_.queue);
  const queue::BatchOptions taking{
      .min_size = by_size ? options_.capacity : 0,
      .is_settled = [this] { return all_readers_wait(); },
      .on_taken = [this](const queue::QueueContents& contents) { capture_state(contents); }};
  // If an input of each period has an element, at most num_threads - 1 readers are about to decode that
  // of theirs, and fewer inputs than this end without one meanwhile.
  const uint64_t max_unusable = inputs_.traits().period * readers_.size();
  for (;;) {
    const bool had_errors = pass_errors_to_ring(ticket);
    if (max_unusable > 0 && unusable_inputs_ > max_unusable)
      return Status(
          StatusCode::kCorrupt,
          "the stream repeats its inputs, and none of them has a record that can be used");
    const auto deadline =
        std::chrono::steady_clock::now() + (by_size || had_errors ? kSettleInterval : kQueueWait);
    auto batch = examples_->dequeue_many(rows, stop, deadline, taking);
    if (batch.status().code() == StatusCode::kTimedOut) {
      if (ring_.closed()) return Status(StatusCode::kClosed, "the ring is closed");
      report_progress();
      continue;
    }
    const bool has_rest = batch.status().code() == StatusCode::kClosed && !stop.stop_requested() &&
                          options_.last_batch == config::LastBatchPolicy::kPad;
    return has_rest ? examples_->dequeue_up_to(rows, stop, kNoDeadline, taking) : std::move(batch);
  }
}

// With the example queue locked, so that no element is between its input and the queue: an input
// continues behind the last of its elements that were ever in the queue.
void StreamFeed::capture_state(const queue::QueueContents& contents) {
  const std::lock_guard lock(inputs_mutex_);
  const auto advance = [](StreamPosition& next, const ElementReference& reference) {
    if (reference.end > next.offset) next = reference.next();
  };
  for (const Tuple& element : contents.batch()) {
    const ElementReference reference = ElementReference::of(element);
    advance(known_inputs_.at(reference.source).next, reference);
  }
  std::vector<StreamState::Source>& sources = state_.sources;
  sources.clear();
  for (const auto& [number, input] : known_inputs_)
    sources.push_back({.number = number,
                       .name = input.name,
                       .next = input.next,
                       .identity = input.identity,
                       .ended = input.ended});
  std::vector<bool> is_used(sources.size());
  state_.elements.clear();
  size_t last = 0;  // consecutive elements mostly have the same input
  contents.for_each([&](const Tuple& element) {
    const ElementReference reference = ElementReference::of(element);
    if (sources[last].number != reference.source)
      last = static_cast<size_t>(
          std::ranges::lower_bound(sources, reference.source, {}, &StreamState::Source::number) -
          sources.begin());
    advance(sources[last].next, reference);
    is_used[last] = true;
    state_.elements.push_back({.source = reference.source, .at = reference.at});
  });
  // Nothing refers to the others any more.
  size_t kept = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].ended && !is_used[i]) {
      finish_input(sources[i]);
      known_inputs_.erase(sources[i].number);
      continue;
    }
    if (kept != i) sources[kept] = std::move(sources[i]);
    ++kept;
  }
  sources.resize(kept);
  state_.next_source = next_input_;
  state_.generator = contents.generator();
}

// Looks only at the input, and rarely at those before, because there can be many.
void StreamFeed::finish_input(const StreamState::Source& input) {
  const uint64_t name_hash = data::stream::hash_of_name(input.name);
  if (!inputs_.must_remember(name_hash)) return;
  std::vector<StreamState::Finished>& finished = state_.finished;
  finished.push_back({.number = input.number, .name_hash = name_hash, .identity = input.identity});
  if (finished.size() < 2 * kept_finished_ + kMinFinished) return;
  std::erase_if(finished, [this](const StreamState::Finished& other) {
    return !inputs_.must_remember(other.name_hash);
  });
  kept_finished_ = finished.size();
}

void StreamFeed::write_rows(const Tuple& batch, std::span<const uint64_t> rows,
                            std::span<std::byte> slot) const {
  const ring::BatchLayout& layout = ring_.layout();
  // Behind the priority, if there is one.
  const auto tensors = std::span(batch).last(spec_.size() + 1);
  const auto count = static_cast<size_t>(tensors[0].shape()[0]);
  const auto taken = rows.first(count);
  const bool adjacent = taken.back() - taken.front() == count - 1;
  for (size_t i = 0; i < spec_.size(); ++i) {
    const queue::Shape shape = to_shape(spec_[i]);
    const bool has_padding = tensors[i].shape().without_first() != shape;
    if (!has_padding && adjacent) {
      std::memcpy(layout.rows(slot, i, taken.front(), count).data(), tensors[i].data(),
                  tensors[i].bytes());
      continue;
    }
    for (size_t element = 0; element < count; ++element) {
      const std::span<std::byte> out = layout.row(slot, i, taken[element]);
      if (has_padding) data::record::fill_padding(out, false);
      queue::copy_padded(tensors[i].slice(static_cast<int64_t>(element)), out.data(), shape);
    }
  }
  if (options_.queue == queue::QueueType::kPaddingFIFO) pad_labels(slot, taken);
  // last_batch: pad. A batch repeats its own samples.
  for (size_t row = count; row < rows.size(); ++row)
    for (size_t i = 0; i < spec_.size(); ++i)
      std::ranges::copy(layout.row(slot, i, rows[row % count]),
                        layout.row(slot, i, rows[row]).begin());
}

// The queue pads with zeros.
void StreamFeed::pad_labels(std::span<std::byte> slot, std::span<const uint64_t> rows) const {
  const auto length = std::ranges::find(spec_, "length", &TensorSpec::name);
  const auto labels = std::ranges::find(spec_, "labels", &TensorSpec::name);
  if (length == spec_.end() || labels == spec_.end()) return;
  const auto tensor = static_cast<size_t>(labels - spec_.begin());
  if (!is_per_step_[tensor]) return;
  const ring::BatchLayout& layout = ring_.layout();
  for (const uint64_t row : rows) {
    int64_t steps = 0;
    std::memcpy(&steps, layout.row(slot, static_cast<size_t>(length - spec_.begin()), row).data(),
                sizeof steps);
    const std::span<std::byte> padding = layout.row(slot, tensor, row);
    data::record::fill_padding(padding.subspan(static_cast<size_t>(steps) * sizeof(int64_t)), true);
  }
}

// The state after the last batch does not have the ends of inputs that were found after it.
Status StreamFeed::end_stream(uint64_t ticket) {
  examples_->visit_contents(
      [this](const queue::QueueContents& contents) { capture_state(contents); });
  STOKER_RETURN_IF_ERROR(record_state_(ticket, state_));
  log_info("stream ended", {{"records", records_.load()},
                            {"errors", errors_.load()},
                            {"dropped", dropped_.load()},
                            {"dropped_bytes", dropped_bytes_.load()},
                            {"left_over", examples_->size()}});
  end_ticket_ = ticket;
  return {};
}

// Then nothing enters the queue until an input gets bytes or a batch is taken.
bool StreamFeed::all_readers_wait() const {
  return std::ranges::all_of(readers_, [](const auto& reader) {
    return reader->waits_for_memory() || reader->waits_for_input();
  });
}

// For the detection of a producer that hangs.
void StreamFeed::report_progress() {
  uint64_t activity = inputs_.polls() + dropped_ + errors_;
  for (const auto& reader : readers_) activity += reader->polls();
  if (std::exchange(last_activity_, activity) != activity || all_readers_wait())
    ring_.add_completed_samples(producer_, 1);
}

// ---- Status

std::optional<uint64_t> StreamFeed::end_ticket() const {
  const uint64_t ticket = end_ticket_;
  return ticket == kNotEnded ? std::nullopt : std::optional(ticket);
}

ThreadList StreamFeed::threads() const {
  ThreadList list = list_records();
  queue::add_waiters(*names_, list);
  queue::add_waiters(*examples_, list);
  return list;
}

StreamStatus StreamFeed::status() const {
  StreamStatus status{.elements = examples_->size(),
                      .bytes = limit_->held_bytes(),
                      .records = records_,
                      .dropped = dropped_,
                      .errors = errors_,
                      .dropped_bytes = dropped_bytes_};
  bool waits = false;
  for (const auto& reader : readers_) {
    status.bytes += reader->held_bytes();
    const std::string name = reader->input_name();
    if (name.empty() || waits) continue;
    waits = reader->waits_for_input();
    if (waits || status.input.empty()) status.input = name;
  }
  if (end_ticket())
    status.activity = StreamStatus::Activity::kEnded;
  else if (status.elements >= options_.capacity)
    status.activity = StreamStatus::Activity::kBlocked;
  else if (all_readers_wait())
    status.activity =
        std::ranges::any_of(readers_, [](const auto& r) { return r->waits_for_memory(); })
            ? StreamStatus::Activity::kBlocked
            : StreamStatus::Activity::kWaiting;
  return status;
}

}  // namespace stoker::feed
