#include "shared/queue/queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <ctime>
#include <new>

#include "shared/queue/element_store.h"
#include "shared/queue/queue_options.h"

namespace stoker::queue {
namespace {

// States of an operation that waits. Only the waiting thread sets kSleeping.
enum AttemptState : uint32_t { kWaiting, kSleeping, kCompleted };

// Before a thread sleeps it polls for about as long as a thread takes to wake up, so that two threads
// that keep pace do not sleep for each element. The intervals let the other side get ahead by several
// elements: a poll takes a cache line from it.
constexpr int kPolls = 4;
constexpr int kPausesPerPoll = 32;

// Between calls of BatchOptions::is_settled.
constexpr std::chrono::milliseconds kSettledPoll{100};

// Elements of a batch for which there is room before the lock is taken.
constexpr int64_t kReservedElements = 4096;

// True as soon as `is_ready()` is.
template <typename Condition>
bool poll(const Condition& is_ready) {
  for (int i = 0; i < kPolls * kPausesPerPoll; ++i) {
    if (i % kPausesPerPoll == 0 && i > 0 && is_ready()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return is_ready();
}

bool has_passed(Deadline deadline) {
  return deadline != kNoDeadline && deadline <= std::chrono::steady_clock::now();
}

// Returns at the latest at the deadline.
void wait_for_change(std::atomic<uint32_t>& state, Deadline deadline) {
  timespec relative{};
  if (deadline != kNoDeadline) {
    const auto now = std::chrono::steady_clock::now();
    if (deadline <= now) return;  // before the difference, which could overflow
    const std::chrono::nanoseconds left = deadline - now;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    relative.tv_sec = seconds.count();
    relative.tv_nsec = (left - seconds).count();
  }
  ::syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, kSleeping,
            deadline == kNoDeadline ? nullptr : &relative, nullptr, 0);
}

bool is_enqueue(Operation operation) {
  switch (operation) {
    case Operation::kEnqueue:
    case Operation::kEnqueueMany:
    case Operation::kClose:
      return true;
    case Operation::kDequeue:
    case Operation::kDequeueMany:
    case Operation::kDequeueUpTo:
      return false;
  }
  return false;
}

// Short enough to need no memory.
Status out_of_memory() { return Status(StatusCode::kOutOfMemory, "out of memory"); }

// Without the message if there is no memory for it.
template <typename Message>
Status make_status(StatusCode code, const Message& message) noexcept {
  try {
    return Status(code, message());
  } catch (const std::bad_alloc&) {
    return Status(code, {});
  }
}

// Consumers take these codes for a normal end.
Status as_cause(Status cause) {
  if (cause.code() != StatusCode::kClosed && cause.code() != StatusCode::kCancelled) return cause;
  return Status(StatusCode::kInternal, cause.to_string());
}

}  // namespace

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kEnqueue:
      return "enqueue";
    case Operation::kEnqueueMany:
      return "enqueue_many";
    case Operation::kDequeue:
      return "dequeue";
    case Operation::kDequeueMany:
      return "dequeue_many";
    case Operation::kDequeueUpTo:
      return "dequeue_up_to";
    case Operation::kClose:
      return "close";
  }
  return "?";
}

// An operation in progress. It is on the stack of its thread, except for a close whose thread does
// not wait.
struct Queue::Attempt {
  Attempt(Operation performed, int64_t elements, Tuple* element = nullptr)
      : operation(performed), requested(elements), remaining(elements), tuple(element) {}

  const Operation operation;
  int64_t requested;
  int64_t remaining;                    // elements still to be added or taken
  Tuple* const tuple;                   // to be enqueued, or the dequeued element
  const BatchOptions* batch = nullptr;  // of a batch
  std::vector<Tuple> taken;             // elements of a batch
  Status cause;                         // of a close
  // Of a close that waits: takes its place in the list if its thread stops waiting.
  std::unique_ptr<Attempt> successor;
  Status status;
  bool completed = false;
  bool waiting = false;   // its thread is in wait()
  bool observed = false;  // the observer was told so
  bool detached = false;  // no thread waits: deleted when completed
  std::thread::id thread;
  std::chrono::steady_clock::time_point since;
  std::atomic<uint32_t> state{kWaiting};  // kCompleted publishes the results to the thread
};

// Threads to wake up, after the mutex is unlocked. An address can be one of a thread that returned
// already; at worst, an unrelated wait there checks its condition once more.
class Queue::Wakeups {
 public:
  Wakeups() = default;
  Wakeups(const Wakeups&) = delete;
  Wakeups& operator=(const Wakeups&) = delete;
  ~Wakeups() {
    for (size_t i = 0; i < size_; ++i) wake(states_[i]);
  }
  void add(const std::atomic<uint32_t>& state) {
    if (size_ < states_.size())
      states_[size_++] = &state;
    else
      wake(&state);
  }

 private:
  static void wake(const void* state) {
    ::syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  std::array<const void*, 8> states_;
  size_t size_ = 0;
};

void QueueContents::for_each(const std::function<void(const Tuple&)>& visit) const {
  store_.for_each(visit);
}

int64_t QueueContents::size() const { return store_.size(); }

std::optional<GeneratorState> QueueContents::generator() const { return store_.generator(); }

Producer& Producer::operator=(Producer&& other) noexcept {
  if (this == &other) return *this;
  end(Status(StatusCode::kInternal, "ended without a status"));
  queue_ = std::exchange(other.queue_, nullptr);
  name_ = std::move(other.name_);
  return *this;
}

Producer::~Producer() { end(Status(StatusCode::kInternal, "ended without a status")); }

void Producer::end(Status status) noexcept {
  if (Queue* const queue = std::exchange(queue_, nullptr))
    queue->end_producer(status.with_context(name_));
}

Result<std::unique_ptr<Queue>> Queue::create(QueueOptions options) {
  if (options.type == QueueType::kPriority) {
    Component priority{.name = "", .dtype = DType::kI64, .shape = Shape()};
    if (!options.components.empty()) {
      if (!options.components[0].name.empty()) priority.name = "priority";
      if (!options.components[0].shape) priority.shape.reset();
    }
    options.components.insert(options.components.begin(), std::move(priority));
  }
  STOKER_RETURN_IF_ERROR(validate_options(options).with_context(label_of(options)));
  auto store = make_element_store(options);
  return std::unique_ptr<Queue>(new Queue(std::move(options), std::move(store)));
}

Queue::Queue(QueueOptions options, std::unique_ptr<ElementStore> store)
    : options_(std::move(options)),
      capacity_(options_.capacity < 0 ? kUnbounded : options_.capacity),
      specified_shapes_(options_.components[0].shape.has_value()),
      store_(std::move(store)) {}

Queue::~Queue() {
  for (Attempt* const attempt : enqueues_) {
    assert(attempt->detached && "an operation is in progress");
    delete attempt;
  }
  assert(dequeues_.empty() && "an operation is in progress");
}

Status Queue::enqueue(Tuple&& element, const std::stop_token& stop, Deadline deadline) {
  STOKER_RETURN_IF_ERROR(validate(element, false));
  Attempt attempt(Operation::kEnqueue, 1, &element);
  perform(attempt, stop, deadline);
  return std::move(attempt.status);
}

Status Queue::enqueue_many(Tuple&& batch, const std::stop_token& stop, Deadline deadline) {
  STOKER_RETURN_IF_ERROR(validate(batch, true));
  Attempt attempt(Operation::kEnqueueMany, batch[0].shape()[0], &batch);
  if (attempt.requested == 0) return {};
  perform(attempt, stop, deadline);
  const int64_t enqueued = attempt.requested - attempt.remaining;
  if (attempt.status.ok())
    batch.clear();
  else if (enqueued > 0)
    for (Tensor& tensor : batch) tensor = tensor.remainder(enqueued);
  return std::move(attempt.status);
}

Result<Tuple> Queue::dequeue(const std::stop_token& stop, Deadline deadline) {
  Result<Tuple> element{Tuple()};  // returned without a move
  Attempt attempt(Operation::kDequeue, 1, &*element);
  perform(attempt, stop, deadline);
  if (!attempt.status.ok()) element = std::move(attempt.status);
  return element;
}

Result<Tuple> Queue::dequeue_many(int64_t n, const std::stop_token& stop, Deadline deadline,
                                  const BatchOptions& options) {
  return dequeue_batch(Operation::kDequeueMany, n, stop, deadline, options);
}

Result<Tuple> Queue::dequeue_up_to(int64_t n, const std::stop_token& stop, Deadline deadline,
                                   const BatchOptions& options) {
  return dequeue_batch(Operation::kDequeueUpTo, n, stop, deadline, options);
}

Result<Tuple> Queue::dequeue_batch(Operation operation, int64_t n, const std::stop_token& stop,
                                   Deadline deadline, const BatchOptions& options) {
  STOKER_RETURN_IF_ERROR(validate_batch_size(n));
  if (options.min_size > capacity_)
    return invalid(label_of(options_) + ": min_size (" + std::to_string(options.min_size) +
                   ") is above the capacity (" + std::to_string(capacity_) + ")");
  Attempt attempt(operation, n);
  attempt.batch = &options;
  Tuple batch;
  Status status;
  try {
    attempt.taken.reserve(static_cast<size_t>(std::min(n, kReservedElements)));
    if (n > 0) perform(attempt, stop, deadline);
    if (!attempt.status.ok()) return std::move(attempt.status);
    // Without the mutex: this copies every byte.
    status = make_batch(attempt.taken, batch);
    if (status.ok()) return batch;
    status = status.with_context(label_of(options_));
  } catch (const std::bad_alloc&) {
    status = out_of_memory();
  }
  Wakeups wakeups;
  const Lock lock(*this);
  put_back(attempt);
  advance_all(wakeups);
  return status;
}

Status Queue::close(bool cancel_pending_enqueues, const std::stop_token& stop, Deadline deadline,
                    Status cause) {
  if (cancel_pending_enqueues) {
    start_close(true, std::move(cause));
    return {};
  }
  Attempt attempt(Operation::kClose, 0);
  attempt.cause = as_cause(std::move(cause));
  attempt.successor.reset(new (std::nothrow) Attempt(Operation::kClose, 0));
  if (attempt.successor == nullptr) return out_of_memory();
  perform(attempt, stop, deadline);
  return std::move(attempt.status);
}

void Queue::start_close(bool cancel_pending_enqueues, Status cause) noexcept {
  Attempt attempt(Operation::kClose, 0);
  attempt.cause = as_cause(std::move(cause));
  Wakeups wakeups;
  const Lock lock(*this);
  if (cancel_pending_enqueues || enqueues_.empty()) {
    run_close(attempt);
    cancel_enqueues(wakeups);
  } else {
    auto* const waiting = new Attempt(Operation::kClose, 0);
    waiting->detached = true;
    waiting->cause = std::move(attempt.cause);
    enqueues_.push_back(waiting);
  }
  advance_all(wakeups);
}

Status Queue::restore(std::vector<Tuple> elements, std::optional<GeneratorState> generator) {
  const Lock lock(*this);
  assert(store_->size() == 0 && !closed_ && "restore() is the first operation");
  for (const Tuple& element : elements) {
    STOKER_RETURN_IF_ERROR(validate(element, false));
    if (!is_priority_valid(element, 0)) return invalid_priority();
  }
  if (generator && options_.type != QueueType::kRandomShuffle)
    return invalid(label_of(options_) + " has no generator");
  try {
    for (Tuple& element : elements) store_->push(std::move(element));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  if (generator) store_->set_generator(*generator);
  return {};
}

void Queue::check_settled() noexcept {
  Wakeups wakeups;
  const Lock lock(*this);
  advance_all(wakeups);
}

Producer Queue::add_producer(std::string name) {
  const Lock lock(*this);
  ++producers_;
  return Producer(this, std::move(name));
}

void Queue::end_producer(Status status) {
  Status cause;
  {
    const Lock lock(*this);
    if (producer_failure_.ok()) producer_failure_ = std::move(status);
    if (--producers_ > 0) return;
    cause = producer_failure_;
  }
  start_close(false, std::move(cause));
}

int64_t Queue::size() const {
  const Lock lock(*this);
  return store_->size();
}

void Queue::visit_contents(const std::function<void(const QueueContents&)>& visit) const {
  const Lock lock(*this);
  visit(QueueContents(*store_, {}));
}

bool Queue::is_closed() const {
  const Lock lock(*this);
  return closed_;
}

std::vector<Waiter> Queue::waiters() const {
  std::vector<Waiter> waiters;
  const Lock lock(*this);
  for (const Attempts* attempts : {&enqueues_, &dequeues_})
    for (const Attempt* attempt : *attempts)
      if (attempt->waiting)
        waiters.push_back({.thread = attempt->thread,
                           .operation = attempt->operation,
                           .requested = attempt->requested,
                           .completed = attempt->requested - attempt->remaining,
                           .since = attempt->since});
  return waiters;
}

bool Queue::needs_both_locks(Operation operation) const {
  const bool is_fifo =
      options_.type == QueueType::kFIFO || options_.type == QueueType::kPaddingFIFO;
  return !is_fifo || (operation != Operation::kEnqueue && operation != Operation::kDequeue);
}

// One element, with the lock of one side.
bool Queue::try_perform(Attempt& attempt) noexcept {
  const bool enqueue = attempt.operation == Operation::kEnqueue;
  const std::lock_guard lock(enqueue ? enqueue_mutex_ : dequeue_mutex_);
  if (!enqueues_.empty() || !dequeues_.empty()) return false;
  if (enqueue) return !closed_ && store_->try_push(std::move(*attempt.tuple), capacity_);
  return store_->try_pop(*attempt.tuple);
}

void Queue::perform(Attempt& attempt, const std::stop_token& stop, Deadline deadline) {
  if (stop.stop_requested() && attempt.operation != Operation::kClose) {
    attempt.status = make_abandoned_status(attempt, StatusCode::kCancelled);
    return;
  }
  const bool one_lock = !needs_both_locks(attempt.operation);
  if (one_lock) {
    if (try_perform(attempt)) return;
    // Polls before it becomes a waiter, whom each operation of the other side would have to wake up.
    const bool enqueue = attempt.operation == Operation::kEnqueue;
    const auto is_possible = [&] {
      const int64_t size = store_->size();
      return enqueue ? size < capacity_ : size > 0;
    };
    if (!is_possible() && poll(is_possible) && try_perform(attempt)) return;
  }
  {
    Wakeups wakeups;
    const Lock lock(*this);
    const bool enqueue = is_enqueue(attempt.operation);
    Attempts& attempts = enqueue ? enqueues_ : dequeues_;
    const Attempts& others = enqueue ? dequeues_ : enqueues_;
    if (attempts.empty() && run(attempt) == Progress::kComplete) {
      if (!others.empty()) advance_all(wakeups);
      return;
    }
    try {
      attempts.push_back(&attempt);
    } catch (const std::bad_alloc&) {
      put_back(attempt);
      attempt.status = out_of_memory();
      attempt.completed = true;
    }
    advance_all(wakeups);
    if (attempt.completed) return;
    attempt.waiting = true;
    attempt.thread = std::this_thread::get_id();
    attempt.since = std::chrono::steady_clock::now();
  }
  const auto is_completed = [&] {
    return attempt.state.load(std::memory_order_acquire) == kCompleted;
  };
  if (one_lock || !poll(is_completed)) wait(attempt, stop, deadline);
}

void Queue::wait(Attempt& attempt, const std::stop_token& stop, Deadline deadline) {
  const std::stop_callback abandon_on_stop(stop, [&] { abandon(attempt, StatusCode::kCancelled); });
  if (observer_ != nullptr) {  // after the callback exists, so that a stop has an effect
    const Lock lock(*this);
    if (attempt.completed) return;
    attempt.observed = true;
    observer_->wait_started();
  }
  uint32_t expected = kWaiting;
  if (!attempt.state.compare_exchange_strong(expected, kSleeping)) return;
  const bool polls = attempt.batch != nullptr && attempt.batch->is_settled;
  while (attempt.state.load(std::memory_order_acquire) != kCompleted) {
    if (has_passed(deadline)) {
      abandon(attempt, StatusCode::kTimedOut);
    } else if (polls) {
      wait_for_change(attempt.state, std::min<Deadline>(deadline, std::chrono::steady_clock::now() +
                                                                      kSettledPoll));
      Wakeups wakeups;
      const Lock lock(*this);
      advance_all(wakeups);
    } else {
      wait_for_change(attempt.state, deadline);
    }
  }
}

// Ends the wait. Has no effect if the operation completed in the meantime.
void Queue::abandon(Attempt& attempt, StatusCode code) noexcept {
  Wakeups wakeups;
  const Lock lock(*this);
  if (attempt.completed) return;
  attempt.status = make_abandoned_status(attempt, code);
  Attempts& attempts = is_enqueue(attempt.operation) ? enqueues_ : dequeues_;
  const auto position = std::ranges::find(attempts, &attempt);
  assert(position != attempts.end());
  if (attempt.operation == Operation::kClose) {
    attempt.successor->detached = true;
    attempt.successor->cause = std::move(attempt.cause);
    *position = attempt.successor.release();
  } else {
    attempts.erase(position);
    put_back(attempt);
  }
  complete(attempt, wakeups);
  advance_all(wakeups);
}

Status Queue::make_abandoned_status(const Attempt& attempt, StatusCode code) const noexcept {
  return make_status(code, [&] {
    std::string message = label_of(options_) + ": " + std::string(to_string(attempt.operation)) +
                          (code == StatusCode::kTimedOut ? " timed out" : " was cancelled");
    if (attempt.operation == Operation::kClose)
      message += "; the queue closes when the pending enqueues have completed";
    if (attempt.operation == Operation::kEnqueueMany)
      message += "; " + std::to_string(attempt.requested - attempt.remaining) + " of " +
                 std::to_string(attempt.requested) + " elements were enqueued";
    return message;
  });
}

Status Queue::make_closed_status(const Attempt& attempt) const noexcept {
  const bool enqueue = is_enqueue(attempt.operation);
  const StatusCode code = enqueue       ? StatusCode::kCancelled
                          : cause_.ok() ? StatusCode::kClosed
                                        : cause_.code();
  return make_status(code, [&] {
    std::string message = label_of(options_) + " is closed";
    if (attempt.operation == Operation::kEnqueueMany)
      message += "; " + std::to_string(attempt.requested - attempt.remaining) + " of " +
                 std::to_string(attempt.requested) + " elements were enqueued";
    if (!enqueue)
      message += " with " + std::to_string(store_->size()) + " of " +
                 std::to_string(attempt.requested) + " requested elements";
    if (!cause_.ok()) message += ": " + cause_.message();
    return message;
  });
}

bool Queue::takes_whole_batch(const Attempt& attempt) const noexcept {
  if (attempt.batch == nullptr) return false;
  // A PriorityQueue's batch is sorted.
  return options_.type == QueueType::kPriority || attempt.batch->min_size > 0;
}

bool Queue::has_space() const noexcept {
  const int64_t size = store_->size();
  if (size < capacity_) return true;
  if (dequeues_.empty() || !takes_whole_batch(*dequeues_.front())) return false;
  return size - options_.min_after_dequeue < dequeues_.front()->requested;
}

// Without memory the operation fails, and what it has taken returns.
Queue::Progress Queue::run(Attempt& attempt) noexcept {
  try {
    switch (attempt.operation) {
      case Operation::kEnqueue:
      case Operation::kEnqueueMany:
        return run_enqueue(attempt);
      case Operation::kClose:
        return run_close(attempt);
      case Operation::kDequeue:
        return run_dequeue(attempt);
      case Operation::kDequeueMany:
      case Operation::kDequeueUpTo:
        return run_dequeue_batch(attempt);
    }
  } catch (const std::bad_alloc&) {
    put_back(attempt);
    attempt.status = out_of_memory();
    return Progress::kComplete;
  }
  return Progress::kNone;
}

Queue::Progress Queue::run_enqueue(Attempt& attempt) {
  if (closed_) {
    attempt.status = make_closed_status(attempt);
    return Progress::kComplete;
  }
  const bool single = attempt.operation == Operation::kEnqueue;
  Tuple& tuple = *attempt.tuple;
  Progress progress = Progress::kNone;
  while (has_space()) {
    if (!is_priority_valid(tuple, single ? 0 : 1)) {
      attempt.status = invalid_priority();
      return Progress::kComplete;
    }
    if (single) {
      store_->push(std::move(tuple));
      return Progress::kComplete;
    }
    Tuple element;
    for (const Tensor& batch : tuple)
      element.push_back(batch.slice(attempt.requested - attempt.remaining));
    store_->push(std::move(element));
    if (--attempt.remaining == 0) return Progress::kComplete;
    progress = Progress::kSome;
  }
  return progress;
}

Queue::Progress Queue::run_close(Attempt& attempt) noexcept {
  if (closed_) attempt.status = make_closed_status(attempt);
  closed_ = true;
  if (cause_.ok()) cause_ = std::move(attempt.cause);
  return Progress::kComplete;
}

Queue::Progress Queue::run_dequeue(Attempt& attempt) {
  const int64_t size = store_->size();
  if (closed_ && size == 0) {
    attempt.status = make_closed_status(attempt);
    return Progress::kComplete;
  }
  if (size <= (closed_ ? 0 : options_.min_after_dequeue)) return Progress::kNone;
  store_->pop(*attempt.tuple);
  return Progress::kComplete;
}

Queue::Progress Queue::run_dequeue_batch(Attempt& attempt) {
  const BatchOptions& options = *attempt.batch;
  if (closed_ && store_->size() < attempt.remaining) {
    put_back(attempt);
    if (attempt.operation != Operation::kDequeueUpTo || store_->size() == 0) {
      attempt.status = make_closed_status(attempt);
      return Progress::kComplete;
    }
    attempt.requested = attempt.remaining = store_->size();
  }
  const int64_t available = store_->size() - (closed_ ? 0 : options_.min_after_dequeue);
  if (!closed_ && takes_whole_batch(attempt)) {
    if (available < attempt.remaining) return Progress::kNone;
    if (store_->size() < options.min_size && !(options.is_settled && options.is_settled()))
      return Progress::kNone;
  }
  const int64_t n = std::min(available, attempt.remaining);
  for (int64_t i = 0; i < n; ++i) store_->pop(attempt.taken.emplace_back());
  if (n > 0) attempt.remaining -= n;
  if (attempt.remaining > 0) return n > 0 ? Progress::kSome : Progress::kNone;
  if (options.on_taken) options.on_taken(QueueContents(*store_, attempt.taken));
  return Progress::kComplete;
}

// Runs waiting operations of one side while they complete. True if an element or a close made
// progress possible for the other side.
bool Queue::advance(Attempts& attempts, Wakeups& wakeups) noexcept {
  bool progress = false;
  while (!attempts.empty()) {
    Attempt& attempt = *attempts.front();
    const Progress result = run(attempt);
    progress = progress || result != Progress::kNone;
    if (result != Progress::kComplete) break;
    attempts.pop_front();
    complete(attempt, wakeups);
  }
  return progress;
}

void Queue::advance_all(Wakeups& wakeups) noexcept {
  bool progress = true;
  while (progress) {
    progress = advance(enqueues_, wakeups);
    progress = advance(dequeues_, wakeups) || progress;
  }
}

// Its thread may return as soon as the state is set.
void Queue::complete(Attempt& attempt, Wakeups& wakeups) noexcept {
  attempt.completed = true;
  if (attempt.detached) {
    delete &attempt;
    return;
  }
  if (!attempt.waiting) return;
  if (attempt.observed) observer_->wait_ended();
  if (attempt.state.exchange(kCompleted) == kSleeping) wakeups.add(attempt.state);
}

void Queue::cancel_enqueues(Wakeups& wakeups) noexcept {
  while (!enqueues_.empty()) {
    Attempt& attempt = *enqueues_.front();
    enqueues_.pop_front();
    attempt.status = make_closed_status(attempt);
    if (attempt.operation == Operation::kClose && cause_.ok()) cause_ = std::move(attempt.cause);
    complete(attempt, wakeups);
  }
}

void Queue::put_back(Attempt& attempt) noexcept {
  if (is_enqueue(attempt.operation)) return;
  store_->put_back(std::move(attempt.taken));
  attempt.taken.clear();
  attempt.remaining = attempt.requested;
}

}  // namespace stoker::queue
