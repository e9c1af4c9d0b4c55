// Pairs of one enqueue and one dequeue per second through a FIFOQueue: of scalars with one thread
// and with several, and of elements of 1 MiB, whose bytes the producer copies.
//
// Baselines do the same: a std::deque under a mutex, the lock-free queues of Boost and moodycamel,
// which spin instead of waiting, check nothing and hold only numbers; TensorFlow's FIFOQueue and
// Python's queue.Queue in processes of their languages; memcpy. STOKER_TENSORFLOW_PYTHON, or
// tf/bin/python in the directory of --baselines, is a Python that has TensorFlow.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <boost/lockfree/queue.hpp>
#ifdef STOKER_WITH_MOODYCAMEL
#include <concurrentqueue.h>
#endif

#include "bench/benches.h"
#include "bench/python_baseline.h"
#include "bench/stopwatch.h"
#include "shared/queue/queue.h"

namespace stoker::bench {
namespace {

constexpr int64_t kCapacity = 64;
constexpr int kManyThreads = 4;  // producers, and as many consumers
constexpr int kCalls = 64;       // between two readings of the clock
constexpr size_t kLargeBytes = 1 << 20;
constexpr const char* kTensorFlowGraph = "TensorFlow, inside its graph";

// Without the copy that an initializer list makes.
queue::Tuple one_tensor(queue::Tensor tensor) {
  queue::Tuple element;
  element.push_back(std::move(tensor));
  return element;
}

// ---- Queues of numbers. push() and pop() wait; they return false after close().

class StokerQueue {
 public:
  StokerQueue() {
    auto made = queue::Queue::create(
        {.name = "bench",
         .capacity = kCapacity,
         .components = {{.name = "", .dtype = DType::kI64, .shape = queue::Shape()}}});
    queue_ = *std::move(made);
  }
  bool push(int64_t value) {
    return queue_->enqueue(one_tensor(queue::Tensor::scalar(value)), {}).ok();
  }
  bool pop() { return queue_->dequeue({}).ok(); }
  void close() { queue_->start_close(true); }

 private:
  std::unique_ptr<queue::Queue> queue_;
};

class DequeUnderMutex {
 public:
  bool push(int64_t value) {
    std::unique_lock lock(mutex_);
    has_space_.wait(lock, [this] { return closed_ || values_.size() < kCapacity; });
    if (closed_) return false;
    values_.push_back(value);
    has_value_.notify_one();
    return true;
  }
  bool pop() {
    std::unique_lock lock(mutex_);
    has_value_.wait(lock, [this] { return closed_ || !values_.empty(); });
    if (values_.empty()) return false;
    values_.pop_front();
    has_space_.notify_one();
    return true;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_space_.notify_all();
    has_value_.notify_all();
  }

 private:
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable has_space_, has_value_;
  std::deque<int64_t> values_;
  bool closed_ = false;
};

// A queue whose operations fail instead of waiting.
template <typename Queue>
class SpinningQueue {
 public:
  bool push(int64_t value) {
    return spin_until([&] { return queue_.try_push(value); });
  }
  bool pop() {
    int64_t value = 0;
    return spin_until([&] { return queue_.try_pop(value); });
  }
  void close() { closed_.store(true, std::memory_order_relaxed); }

 private:
  template <typename Operation>
  bool spin_until(const Operation& operation) {
    while (!operation()) {
      if (closed_.load(std::memory_order_relaxed)) return false;
      std::this_thread::yield();
    }
    return true;
  }
  Queue queue_;
  std::atomic<bool> closed_ = false;
};

struct BoostQueue {
  bool try_push(int64_t value) { return queue.push(value); }
  bool try_pop(int64_t& value) { return queue.pop(value); }
  boost::lockfree::queue<int64_t, boost::lockfree::capacity<kCapacity>> queue;
};

#ifdef STOKER_WITH_MOODYCAMEL
struct MoodycamelQueue {
  // Never allocates, so that it is about as bounded as the others; each producer has its own blocks.
  bool try_push(int64_t value) { return queue.try_enqueue(value); }
  bool try_pop(int64_t& value) { return queue.try_dequeue(value); }
  moodycamel::ConcurrentQueue<int64_t> queue{kCapacity, 0, kManyThreads};
};
#endif

// ---- Runs

template <typename Queue>
Result<double> one_thread(std::chrono::nanoseconds time) {
  Queue queue;
  const Stopwatch watch;
  uint64_t pairs = 0;
  do {
    for (int i = 0; i < kCalls; ++i, ++pairs)
      if (!queue.push(i) || !queue.pop())
        return Status(StatusCode::kInternal, "an operation failed");
  } while (watch.elapsed() < time);
  return static_cast<double>(pairs) / watch.seconds();
}

// `threads` producers and as many consumers.
template <typename Queue>
Result<double> several_threads(int threads, std::chrono::nanoseconds time) {
  Queue queue;
  std::atomic<uint64_t> pairs{0};
  std::vector<std::jthread> workers;
  const Stopwatch watch;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&queue] {
      while (queue.push(1)) {
      }
    });
    workers.emplace_back([&queue, &pairs] {
      uint64_t popped = 0;
      while (queue.pop()) ++popped;
      pairs += popped;
    });
  }
  std::this_thread::sleep_for(time);
  const double seconds = watch.seconds();
  queue.close();
  workers.clear();  // joins; at most the contents and one element a thread follow
  return static_cast<double>(pairs.load()) / seconds;
}

template <typename Queue>
Measure measure_pairs(int threads, std::chrono::nanoseconds time) {
  if (threads == 0) return [time] { return one_thread<Queue>(time); };
  return [=] { return several_threads<Queue>(threads, time); };
}

// ---- Elements of 1 MiB

using LargeBytes = std::vector<std::byte>;

Result<double> large_elements(const LargeBytes& source, std::chrono::nanoseconds time) {
  const queue::Shape shape({static_cast<int64_t>(source.size())});
  STOKER_ASSIGN_OR_RETURN(
      const auto fifo,
      queue::Queue::create({.name = "bench",
                            .capacity = kCapacity,
                            .components = {{.name = "", .dtype = DType::kU8, .shape = shape}}}));
  const Stopwatch watch;
  uint64_t elements = 0;
  do {
    STOKER_ASSIGN_OR_RETURN(queue::Tensor tensor, queue::Tensor::allocate(DType::kU8, shape));
    std::memcpy(tensor.mutable_data(), source.data(), source.size());
    STOKER_RETURN_IF_ERROR(fifo->enqueue(one_tensor(std::move(tensor)), {}));
    STOKER_RETURN_IF_ERROR(fifo->dequeue({}).status());
    ++elements;
  } while (watch.elapsed() < time);
  return static_cast<double>(elements * source.size()) / watch.seconds() / 1e9;
}

Result<double> copies(const LargeBytes& source, LargeBytes& target, std::chrono::nanoseconds time) {
  const Stopwatch watch;
  uint64_t number = 0;
  do {
    std::memcpy(target.data(), source.data(), source.size());
    asm volatile("" ::"r"(target.data()) : "memory");  // keeps the copy from being optimized away
    ++number;
  } while (watch.elapsed() < time);
  return static_cast<double>(number * source.size()) / watch.seconds() / 1e9;
}

// ---- Baselines in Python

struct PythonQueue {
  std::string name;
  std::shared_ptr<PythonBaseline> process;
};

std::vector<PythonQueue> start_python_queues(const Options& options) {
  struct Library {
    const char* name;
    const char* argument;
  };
  std::vector<PythonQueue> queues;
  const auto start = [&queues](const std::string& python, const Library& library) {
    auto process = find_python_baseline("queue", python, "queue_baseline.py", {library.argument});
    if (process) queues.push_back({library.name, std::move(process)});
  };
  const char* const named = std::getenv("STOKER_TENSORFLOW_PYTHON");
  std::string tensorflow = named != nullptr ? named : "";
  if (tensorflow.empty() && !options.baselines.empty())
    tensorflow = options.baselines + "/tf/bin/python";
  if (tensorflow.empty()) {
    std::fprintf(
        stderr,
        "queue: no baseline: TensorFlow: neither STOKER_TENSORFLOW_PYTHON nor --baselines\n");
  } else {
    start(tensorflow, {kTensorFlowGraph, "tensorflow-graph"});
    start(tensorflow, {"TensorFlow, from Python", "tensorflow"});
  }
  start(find_named_python().value_or("python3"), {"Python, queue.Queue", "python"});
#ifndef STOKER_WITH_MOODYCAMEL
  std::fprintf(stderr, "queue: no baseline: moodycamel: built without libconcurrentqueue-dev\n");
#endif
  return queues;
}

void add_python_queues(const std::vector<PythonQueue>& queues, int threads, size_t bytes,
                       const Options& options, Trial& trial) {
  const std::string line =
      std::to_string(threads) + " " + std::to_string(options.seconds) + " " + std::to_string(bytes);
  const double scale = bytes == 0 ? 1 : static_cast<double>(bytes) / 1e9;
  for (const PythonQueue& python : queues) {
    if (bytes > 0 && python.name == kTensorFlowGraph) continue;  // enqueues a constant, not copied
    trial.baselines.push_back({python.name, [=]() -> Result<double> {
                                 STOKER_ASSIGN_OR_RETURN(const double rate,
                                                         python.process->request(line));
                                 return rate * scale;
                               }});
  }
}

Trial scalar_trial(const std::string& metric, int threads, const std::vector<PythonQueue>& queues,
                   const Options& options) {
  const auto time = options.run_time();
  Trial trial{
      .metric = metric,
      .unit = "pairs/s",
      .run = measure_pairs<StokerQueue>(threads, time),
      .baselines = {
          {"std::deque under a mutex", measure_pairs<DequeUnderMutex>(threads, time)},
          {"boost::lockfree::queue", measure_pairs<SpinningQueue<BoostQueue>>(threads, time)}}};
#ifdef STOKER_WITH_MOODYCAMEL
  trial.baselines.push_back({"moodycamel::ConcurrentQueue",
                             measure_pairs<SpinningQueue<MoodycamelQueue>>(threads, time)});
#endif
  add_python_queues(queues, threads, 0, options, trial);
  return trial;
}

}  // namespace

Benchmark queue_pairs() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const std::vector<PythonQueue> queues = start_python_queues(options);
    std::vector<Trial> trials{
        scalar_trial("scalars, one thread", 0, queues, options),
        scalar_trial("scalars, 1 producer and 1 consumer", 1, queues, options),
        scalar_trial("scalars, 4 producers and 4 consumers", kManyThreads, queues, options)};
    const size_t bytes = options.quick ? 4 << 10 : kLargeBytes;
    const auto source = std::make_shared<LargeBytes>(bytes, std::byte(7));
    const auto target = std::make_shared<LargeBytes>(bytes, std::byte(1));  // touches all pages
    const auto time = options.run_time();
    Trial large{.metric = "elements of " + std::to_string(bytes >> 10) + " KiB, one thread",
                .unit = "GB/s",
                .run = [=] { return large_elements(*source, time); },
                .baselines = {{"memcpy", [=] { return copies(*source, *target, time); }}}};
    add_python_queues(queues, 0, bytes, options, large);
    trials.push_back(std::move(large));
    return trials;
  };
  return {"queue", "pairs of enqueue and dequeue per second through a FIFOQueue", prepare};
}

}  // namespace stoker::bench
