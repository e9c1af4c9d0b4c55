// QueueRunner: fills a queue with threads that each run an enqueue operation again and again.
//
// A thread ends when its operation returns kClosed or kCancelled: the source has no more elements,
// or the queue is closed. When the last thread has ended this way, the queue closes. Any other error
// stops all threads and closes the queue with the error as the cause, which consumers get after the
// remaining elements.
//
// With a coordinator the threads are among its own: an error of one stops all of them, and one more
// thread per queue waits for the stop and then closes the queue, so that operations that ignore the
// stop token are cancelled too; it also ends when the others have ended normally. Without one, the
// threads run until their operations end or this object is destroyed.
//
// Threads:  every method may be called from any thread.
// Blocking: the destructor waits for threads that were created without a coordinator.
// Owner:    the queue must outlive this object, and this object the threads; with a coordinator,
//           join it first.
// Errors:   status(): the first error of an enqueue operation.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/base/thread_registry.h"
#include "shared/queue/queue.h"

namespace stoker::queue {

// Reads one element or batch and enqueues it. Every wait in it must end when `stop` is requested.
using EnqueueOperation = std::function<Status(const std::stop_token& stop)>;

// A thread that is created and can be started. Must not outlive its runner and coordinator. Its
// producer is registered from the creation on, so the queue stays open until it has run.
class QueueThread {
 public:
  const std::string& name() const { return name_; }
  void start();  // only the first call has an effect

 private:
  friend class QueueRunner;
  QueueThread(Coordinator& coordinator, std::string name, std::string operation, std::string queue,
              Coordinator::Body body);

  Coordinator* coordinator_;
  std::string name_;
  std::unique_ptr<ThreadRecord> maybe_record_;  // null: started
  Coordinator::Body body_;
};

class QueueRunner {
 public:
  // One thread for each operation.
  QueueRunner(Queue& queue, std::vector<EnqueueOperation> operations);
  ~QueueRunner();
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;

  // Creates the threads, and starts them unless `start` is false. Returns them the first time, none
  // after that.
  std::vector<QueueThread> create_threads(Coordinator* maybe_coordinator, bool start = true);

  const Queue& queue() const { return queue_; }
  Status status() const;

 private:
  Status enqueue_until_end(Coordinator& coordinator, const std::string& name,
                           const EnqueueOperation& operation, Producer& producer,
                           const std::stop_token& stop);
  Status close_on_stop(const Coordinator& coordinator, const std::stop_token& stop);

  // Constant after construction.
  Queue& queue_;
  const std::string queue_name_;
  const std::vector<EnqueueOperation> operations_;

  // Own synchronization.
  std::atomic<size_t> running_;  // enqueue threads that have not ended; each decrements it once
  std::stop_source ended_;       // of the thread that waits for the stop: no enqueue thread is left

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  bool created_ = false;
  Status status_;

  Coordinator
      own_threads_;  // created without a coordinator; last member, because they use the others
};

// QueueRunnerRegistry: starts the threads of several queue runners together.
//
// Threads: one thread at a time; list_threads() in any thread after the last add_queue_runner().
// Owner:   owns the runners; see QueueRunner.
class QueueRunnerRegistry {
 public:
  QueueRunner& add_queue_runner(Queue& queue, std::vector<EnqueueOperation> operations);

  // Creates the threads of all runners that have none yet, and starts them unless `start` is false.
  std::vector<QueueThread> start_queue_runners(Coordinator* maybe_coordinator, bool start = true);

  // The threads of the process, with what they wait for in the queues of the runners.
  ThreadList list_threads() const;

 private:
  std::list<QueueRunner> runners_;  // a list, because runners do not move
};

// Sets queue, operation, state and time of the threads in `list` that wait in `queue`.
void add_waiters(const Queue& queue, ThreadList& list);

}  // namespace stoker::queue
