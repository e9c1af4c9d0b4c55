#include "shared/queue/queue_runner.h"

#include <algorithm>
#include <utility>

#include "shared/base/deadline.h"

namespace stoker::queue {
namespace {

constexpr ThreadActivity kWaitForStop{.operation = "wait for stop", .is_waiting = true};

// "enqueue_many 3/6": elements added or taken so far, and in total.
std::string describe_operation(const Waiter& waiter) {
  std::string text(to_string(waiter.operation));
  if (waiter.requested > 1)
    text += " " + std::to_string(waiter.completed) + "/" + std::to_string(waiter.requested);
  return text;
}

// In messages and lists of threads.
std::string label_of(const Queue& queue) {
  return queue.name().empty() ? std::string(to_string(queue.type())) : queue.name();
}

// Consumers get the cause of a stop, but a clean one as the end.
Status cause_of_stop(const Coordinator& coordinator) {
  const Status reason = coordinator.reason();
  return is_normal_end(reason) ? Status() : reason;
}

}  // namespace

// ---- QueueThread

QueueThread::QueueThread(Coordinator& coordinator, std::string name, std::string operation,
                         std::string queue, Coordinator::Body body)
    : coordinator_(&coordinator),
      name_(std::move(name)),
      maybe_record_(std::make_unique<ThreadRecord>(name_, std::move(operation), std::move(queue))),
      body_(std::move(body)) {}

void QueueThread::start() {
  if (maybe_record_ == nullptr) return;
  coordinator_->start(std::move(maybe_record_), std::exchange(body_, nullptr));
}

// ---- QueueRunner

QueueRunner::QueueRunner(Queue& queue, std::vector<EnqueueOperation> operations)
    : queue_(queue),
      queue_name_(label_of(queue)),
      operations_(std::move(operations)),
      running_(operations_.size()) {}

QueueRunner::~QueueRunner() {
  own_threads_.request_stop();
  // Also cancels operations that ignore the stop token.
  if (!own_threads_.all_joined()) queue_.start_close(true);
}

std::vector<QueueThread> QueueRunner::create_threads(Coordinator* maybe_coordinator, bool start) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(created_, true)) return {};
  }
  Coordinator& coordinator = maybe_coordinator != nullptr ? *maybe_coordinator : own_threads_;
  std::vector<QueueThread> threads;
  for (size_t i = 0; i < operations_.size(); ++i) {
    std::string name = queue_name_ + "/enqueue-" + std::to_string(i);
    // Shared because a std::function must be copyable.
    auto producer = std::make_shared<Producer>(queue_.add_producer(name));
    threads.push_back(QueueThread(coordinator, name, "enqueue", queue_name_,
                                  [this, &coordinator, name, &operation = operations_[i],
                                   producer = std::move(producer)](const std::stop_token& stop) {
                                    return enqueue_until_end(coordinator, name, operation,
                                                             *producer, stop);
                                  }));
  }
  if (maybe_coordinator != nullptr) {
    threads.push_back(QueueThread(coordinator, queue_name_ + "/close", "close", queue_name_,
                                  [this, &coordinator](const std::stop_token& stop) {
                                    return close_on_stop(coordinator, stop);
                                  }));
  }
  if (start)
    for (QueueThread& thread : threads) thread.start();
  return threads;
}

Status QueueRunner::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Status QueueRunner::enqueue_until_end(Coordinator& coordinator, const std::string& name,
                                      const EnqueueOperation& operation, Producer& producer,
                                      const std::stop_token& stop) {
  const Status status = catch_exceptions([&] {
    Status result;
    while (result.ok() && !stop.stop_requested()) result = operation(stop);
    return result;
  });
  if (is_normal_end(status)) {
    // The last one closes the queue. After a stop its reason is the cause, in case that this thread
    // is earlier than the one that closes on a stop.
    producer.end(stop.stop_requested() ? cause_of_stop(coordinator) : Status());
    if (--running_ == 0) ended_.request_stop();
    return status;
  }
  const Status cause = status.with_context(name);
  {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = cause;
  }
  // First the coordinator, because consumers also report the cause once they get it.
  coordinator.request_stop(cause);
  queue_.start_close(true, cause);
  producer.end(cause);
  return status;
}

Status QueueRunner::close_on_stop(const Coordinator& coordinator, const std::stop_token& stop) {
  {
    const ScopedActivity waiting(kWaitForStop);
    const std::stop_callback wake_on_stop(stop, [this] { ended_.request_stop(); });
    sleep_until(ended_.get_token(), kNoDeadline);
  }
  // Otherwise the last enqueue thread has closed it.
  if (stop.stop_requested()) queue_.start_close(true, cause_of_stop(coordinator));
  return {};
}

// ---- QueueRunnerRegistry

QueueRunner& QueueRunnerRegistry::add_queue_runner(Queue& queue,
                                                   std::vector<EnqueueOperation> operations) {
  return runners_.emplace_back(queue, std::move(operations));
}

std::vector<QueueThread> QueueRunnerRegistry::start_queue_runners(Coordinator* maybe_coordinator,
                                                                  bool start) {
  std::vector<QueueThread> all;
  for (QueueRunner& runner : runners_)
    for (QueueThread& thread : runner.create_threads(maybe_coordinator, start))
      all.push_back(std::move(thread));
  return all;
}

ThreadList QueueRunnerRegistry::list_threads() const {
  ThreadList list = stoker::list_threads();
  for (const QueueRunner& runner : runners_) add_waiters(runner.queue(), list);
  return list;
}

void add_waiters(const Queue& queue, ThreadList& list) {
  for (const Waiter& waiter : queue.waiters()) {
    const auto thread = std::ranges::find_if(list.threads, [&](const ThreadInfo& info) {
      return is_live(info.state) && info.thread == waiter.thread;
    });
    if (thread == list.threads.end()) continue;
    thread->queue = label_of(queue);
    thread->operation = describe_operation(waiter);
    thread->state = ThreadState::kWaiting;
    thread->since = waiter.since.time_since_epoch();
  }
}

}  // namespace stoker::queue
