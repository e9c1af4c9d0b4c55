// Queue: bounded queue of tuples of tensors: FIFOQueue, RandomShuffleQueue, PaddingFIFOQueue and
// PriorityQueue with the semantics of TensorFlow's (docs/queues.md, which lists the deviations).
//
// Waiting operations are served in order of arrival, enqueues and dequeues separately. The first
// one progresses as far as it can: enqueue_many() of more elements than there is space for adds
// some and waits, dequeue_many() takes some and waits. An operation that can progress never waits
// behind one of the other side.
//
// Threads:  every method may be called from any thread. No operation may be in progress when the
//           queue is destroyed.
// Blocking: enqueue, dequeue and close() wait until `stop` or `deadline`; the others never wait.
// Errors:   kInvalidArgument: a tuple does not match the components, n is negative, or a padded batch
//                             would exceed max_batch_bytes.
//           kCancelled:       enqueue to, or close() of, a closed queue; stop requested.
//           kClosed:          dequeue: closed, with fewer elements than needed.
//           kTimedOut:        the deadline passed.
//           kOutOfMemory:     no memory for the operation or a batch.
//           The cause given to close(): dequeue, in place of kClosed.
//           A dequeue that fails takes no elements: partial batches return to the queue. A failed
//           enqueue_many() can have enqueued some.
// Crash:    contents are lost with the process. The process ends if there is no memory to return the
//           elements of a partial batch, to close the queue or to end a producer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "shared/base/deadline.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/queue/tensor.h"

namespace stoker::queue {

inline constexpr int64_t kUnbounded = std::numeric_limits<int32_t>::max();
inline constexpr size_t kCacheLine = 64;  // bytes

enum class QueueType { kFIFO, kRandomShuffle, kPaddingFIFO, kPriority };
std::string_view to_string(QueueType type);  // "FIFOQueue", …

// One component of each element.
struct Component {
  std::string name;  // empty: none of the components has a name
  DType dtype = DType::kF32;
  std::optional<Shape> shape;  // nullopt: any shape; then dequeue_many() is not possible
};

struct QueueOptions {
  std::string name;  // in messages and in lists of threads
  QueueType type = QueueType::kFIFO;
  int64_t capacity = -1;          // elements; negative: unbounded
  int64_t min_after_dequeue = 0;  // kRandomShuffle: elements that remain until the queue closes
  std::optional<uint64_t> seed;   // kRandomShuffle; nullopt: a random one
  // kPaddingFIFO: of a component of a batch, whose padding can be much larger than its elements.
  size_t max_batch_bytes = size_t{1} << 32;
  // Shapes: all or none. kPaddingFIFO needs them and allows kUnknownExtent. kPriority adds the
  // priority, an I64 scalar, as component 0.
  std::vector<Component> components;
};

enum class Operation { kEnqueue, kEnqueueMany, kDequeue, kDequeueMany, kDequeueUpTo, kClose };
std::string_view to_string(Operation operation);  // "enqueue", "dequeue_many", …

// An operation that waits.
struct Waiter {
  std::thread::id thread;
  Operation operation;
  int64_t requested = 0;  // elements in total; 0 for close()
  int64_t completed = 0;  // of these, already added or taken
  std::chrono::steady_clock::time_point since;
};

// WaitObserver: is notified when operations start and stop waiting, so that a test can detect that no
// thread can progress.
//
// Threads:  called by any thread with the queue locked; must not use the queue.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void wait_started() = 0;
  // By the thread that completed the operation, before the waiting thread runs.
  virtual void wait_ended() = 0;
};

// The state of a RandomShuffleQueue's generator.
struct GeneratorState {
  uint64_t key = 0;
  uint64_t stream = 0;
  uint64_t draws = 0;  // numbers drawn so far
  bool operator==(const GeneratorState&) const = default;
};
static_assert(sizeof(GeneratorState) == 24, "stored as bytes");

class ElementStore;
class Queue;

// QueueContents: what a queue holds when a batch has been taken, before waiting enqueues add
// elements, or in visit_contents(). restore() continues from it: the same elements, enqueued in the
// same order, give the same batches.
//
// Threads:  valid during the call that receives it, in which the queue is locked.
class QueueContents {
 public:
  // The elements of the batch, in its order; empty in visit_contents().
  std::span<const Tuple> batch() const { return batch_; }
  // The elements that remain, in the order that restore() takes. A call copies no bytes; that of a
  // PriorityQueue sorts.
  void for_each(const std::function<void(const Tuple&)>& visit) const;
  int64_t size() const;
  std::optional<GeneratorState> generator() const;  // nullopt: not a RandomShuffleQueue

 private:
  friend class Queue;
  QueueContents(const ElementStore& store, std::span<const Tuple> batch)
      : store_(store), batch_(batch) {}
  const ElementStore& store_;
  const std::span<const Tuple> batch_;
};

// How dequeue_many() and dequeue_up_to() take a batch. The functions are called by any thread with
// the queue locked; they must not use the queue or wait. With std::bad_alloc the dequeue fails; they
// must not throw anything else.
struct BatchOptions {
  // 0: elements are taken as they arrive. Otherwise all together, when the queue has at least this
  // number (and n, and min_after_dequeue more) or is closed. With the capacity, a batch of a
  // RandomShuffleQueue is drawn from a full queue, and so does not depend on when elements arrive.
  int64_t min_size = 0;
  // With min_size: true if the batch shall not wait for it, as when all producers wait for their
  // sources. Called when the queue changes, in check_settled(), and every 100 ms. Elements that a producer enqueued before
  // it became true are in the queue then, because the queue is locked.
  std::function<bool()> is_settled;
  // Called once when the batch has been taken, before any later operation. If dequeue_many() returns
  // an error after it (kOutOfMemory, max_batch_bytes), the elements return to the queue.
  std::function<void(const QueueContents&)> on_taken;
};

// Producer: one of the threads or processes that feed a queue. When the last one ends, the queue
// closes, so that no consumer waits forever.
//
// Threads:  not thread-safe; may be moved to another thread.
// Owner:    must not outlive the queue.
class Producer {
 public:
  Producer() = default;
  Producer(Producer&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), name_(std::move(other.name_)) {}
  Producer& operator=(Producer&& other) noexcept;
  // Without end(): as end() with an error that names the producer.
  ~Producer();

  // The first status that is not ok becomes the cause with which the queue closes, as in close().
  // Pending enqueues of others complete first. Only the first call has an effect.
  void end(Status status) noexcept;

 private:
  friend class Queue;
  Producer(Queue* queue, std::string name) : queue_(queue), name_(std::move(name)) {}
  Queue* queue_ = nullptr;  // null: ended
  std::string name_;
};

class Queue {
 public:
  // kInvalidArgument: names, shapes, capacity or min_after_dequeue contradict each other.
  static Result<std::unique_ptr<Queue>> create(QueueOptions options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // The tuple is moved from on success only.
  Status enqueue(Tuple&& element, const std::stop_token& stop, Deadline deadline = kNoDeadline);
  // Enqueues the slices of the outermost dimension; they share the batch's bytes. After an error the
  // batch has the elements that were not enqueued.
  Status enqueue_many(Tuple&& batch, const std::stop_token& stop, Deadline deadline = kNoDeadline);

  Result<Tuple> dequeue(const std::stop_token& stop, Deadline deadline = kNoDeadline);
  // n elements as a batch. A PaddingFIFOQueue pads them with zeros to the largest extents.
  // kInvalidArgument: min_size is above the capacity.
  Result<Tuple> dequeue_many(int64_t n, const std::stop_token& stop,
                             Deadline deadline = kNoDeadline, const BatchOptions& options = {});
  // Like dequeue_many(), but of a closed queue the remaining elements if they are fewer than n.
  Result<Tuple> dequeue_up_to(int64_t n, const std::stop_token& stop,
                              Deadline deadline = kNoDeadline, const BatchOptions& options = {});

  // No more elements will be enqueued. Enqueues that are waiting complete first, and close() waits
  // for them; after kCancelled and kTimedOut the queue still closes when they have completed.
  // With cancel_pending_enqueues they fail with kCancelled, and the queue closes immediately.
  // `cause`, if not ok, is what dequeues report in place of kClosed; the first one counts. kClosed and
  // kCancelled, which would be taken for a normal end, are reported as kInternal.
  Status close(bool cancel_pending_enqueues, const std::stop_token& stop,
               Deadline deadline = kNoDeadline, Status cause = {});
  // As close() without a wait: the queue closes when waiting enqueues have completed.
  void start_close(bool cancel_pending_enqueues, Status cause = {}) noexcept;

  // Continues from QueueContents: its elements in their order, and its generator (nullopt: as
  // created). Before the first operation. The elements may exceed the capacity. kInvalidArgument: an
  // element does not match the components, or a generator for a queue that has none. After an error
  // the queue must not be used.
  Status restore(std::vector<Tuple> elements,
                 std::optional<GeneratorState> generator = std::nullopt);

  // For a producer for which BatchOptions::is_settled may have become true: a batch that waits for it
  // is taken before this call returns.
  void check_settled() noexcept;

  // Registers a producer. Of a queue that is closed, the producer has no effect.
  Producer add_producer(std::string name);

  int64_t size() const;
  // Calls `visit` with the queue locked; it must not use the queue or wait.
  void visit_contents(const std::function<void(const QueueContents&)>& visit) const;
  bool is_closed() const;
  std::vector<Waiter> waiters()
      const;  // enqueues and closes, then dequeues, each in order of arrival

  const std::string& name() const { return options_.name; }
  QueueType type() const { return options_.type; }
  int64_t capacity() const { return capacity_; }  // kUnbounded if unbounded
  // With the priority, if there is one.
  const std::vector<Component>& components() const { return options_.components; }
  // The tensors in the order of the components. kInvalidArgument: the names differ from those
  // declared.
  Result<Tuple> arrange(std::vector<std::pair<std::string, Tensor>> named) const;

  // Before the first operation. Must outlive this object.
  void set_wait_observer(WaitObserver* observer) { observer_ = observer; }

 private:
  friend class Producer;
  struct Attempt;
  class Wakeups;
  using Attempts = std::deque<Attempt*>;
  enum class Progress { kNone, kSome, kComplete };

  Queue(QueueOptions options, std::unique_ptr<ElementStore> store);
  Status validate(const Tuple& tuple, bool is_batch) const;
  bool is_priority_valid(const Tuple& tuple, size_t rank) const;
  Status invalid_priority() const;
  Status validate_batch_size(int64_t n) const;
  Result<Tuple> dequeue_batch(Operation operation, int64_t n, const std::stop_token& stop,
                              Deadline deadline, const BatchOptions& options);
  Status make_batch(const std::vector<Tuple>& elements, Tuple& batch) const;
  Status validate_padding(size_t component, const Shape& padded, int64_t n) const;
  Status make_abandoned_status(const Attempt& attempt, StatusCode code) const noexcept;

  bool needs_both_locks(Operation operation) const;
  bool try_perform(Attempt& attempt) noexcept;
  // Performs the operation, and returns when it has completed.
  void perform(Attempt& attempt, const std::stop_token& stop, Deadline deadline);
  void wait(Attempt& attempt, const std::stop_token& stop, Deadline deadline);
  void abandon(Attempt& attempt, StatusCode code) noexcept;
  void end_producer(Status status);

  // Require both mutexes. None throws, so that an operation cannot end while it is in a list, or lose
  // elements that it has taken.
  Status make_closed_status(const Attempt& attempt) const noexcept;
  bool takes_whole_batch(const Attempt& attempt) const noexcept;
  bool has_space() const noexcept;
  Progress run(Attempt& attempt) noexcept;
  Progress run_close(Attempt& attempt) noexcept;
  bool advance(Attempts& attempts, Wakeups& wakeups) noexcept;
  void advance_all(Wakeups& wakeups) noexcept;
  void complete(Attempt& attempt, Wakeups& wakeups) noexcept;
  void cancel_enqueues(Wakeups& wakeups) noexcept;
  void put_back(Attempt& attempt) noexcept;
  // Of run(), which handles std::bad_alloc.
  Progress run_enqueue(Attempt& attempt);
  Progress run_dequeue(Attempt& attempt);
  Progress run_dequeue_batch(Attempt& attempt);

  // Constant after construction.
  const QueueOptions options_;
  const int64_t capacity_;
  const bool specified_shapes_;
  WaitObserver* observer_ = nullptr;

  // What follows is read with one of the mutexes and changed with both. Only the elements of a
  // FIFO store are also changed with one: the enqueue of an element that needs not wait and finds no
  // waiters holds that of its side, and so does such a dequeue, so that one producer and one consumer
  // do not contend for a mutex.
  class Lock {
   public:
    explicit Lock(const Queue& queue)
        : enqueues_(queue.enqueue_mutex_), dequeues_(queue.dequeue_mutex_) {}

   private:
    const std::lock_guard<std::mutex> enqueues_, dequeues_;  // in this order
  };
  alignas(kCacheLine) mutable std::mutex enqueue_mutex_;
  alignas(kCacheLine) mutable std::mutex dequeue_mutex_;
  alignas(kCacheLine) std::unique_ptr<ElementStore> store_;
  Attempts enqueues_;  // waiting, in order of arrival; closes too
  Attempts dequeues_;
  bool closed_ = false;
  Status cause_;
  int64_t producers_ = 0;
  Status producer_failure_;
};

}  // namespace stoker::queue
