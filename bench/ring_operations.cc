// Tiny batches per second that pass through the ring: claim, publish, pop and release of each.
// Baselines pass messages of the same size by common means: a queue with a mutex within a process,
// and a pipe between two.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/benches.h"
#include "bench/child_process.h"
#include "bench/ring_run.h"
#include "bench/stopwatch.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

constexpr size_t kBytes = 64;
constexpr size_t kSlots = 64;  // capacity of the smallest pipe in messages of this size
using Message = std::array<std::byte, kBytes>;

RingRun tiny_batches(Side producer) {
  return {.layout = ring::BatchLayout(
              {{.name = "x", .dtype = DType::kU8, .shape = {static_cast<int64_t>(kBytes)}}}, 1),
          .slots = kSlots,
          .producer = producer,
          .fill = [](std::span<std::byte> slot) { std::memset(slot.data(), 1, kBytes); }};
}

class BoundedQueue {
 public:
  bool push(const Message& message) {  // false: closed
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return closed_ || messages_.size() < kSlots; });
    if (closed_) return false;
    messages_.push_back(message);
    has_message_.notify_one();
    return true;
  }
  Message pop() {
    std::unique_lock lock(mutex_);
    has_message_.wait(lock, [this] { return !messages_.empty(); });
    const Message message = messages_.front();
    messages_.pop_front();
    has_room_.notify_one();
    return message;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_room_.notify_all();
  }

 private:
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable has_room_, has_message_;
  std::deque<Message> messages_;
  bool closed_ = false;
};

Result<double> queue_rate(std::chrono::nanoseconds time) {
  BoundedQueue queue;
  std::jthread producer([&queue] {
    Message message{};
    while (queue.push(message)) message[0] = std::byte(1);
  });
  const Stopwatch watch;
  uint64_t messages = 0;
  while (watch.elapsed() < time)
    for (int i = 0; i < 64; ++i, ++messages) (void)queue.pop();
  const double rate = static_cast<double>(messages) / watch.seconds();
  queue.close();
  return rate;
}

Result<double> pipe_rate(std::chrono::nanoseconds time) {
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) return Status::from_errno(errno, "pipe");
  const UniqueFd out(pipe_fds[0]);
  UniqueFd in(pipe_fds[1]);
  if (::fcntl(in.get(), F_SETPIPE_SZ, kSlots * kBytes) != static_cast<int>(kSlots * kBytes))
    return Status(StatusCode::kInternal, "the pipe does not have the requested size");
  // Killed by its destructor; detecting the end of data in the pipe would add a check to the
  // measured loop.
  STOKER_ASSIGN_OR_RETURN(const auto producer, ChildProcess::fork([&in]() -> Status {
                            Message message{};
                            while (::write(in.get(), message.data(), kBytes) > 0)
                              message[0] = std::byte(1);
                            return {};
                          }));
  in.reset();
  Message message{};
  const Stopwatch watch;
  uint64_t messages = 0;
  while (watch.elapsed() < time)
    for (int i = 0; i < 64; ++i, ++messages)
      if (::read(out.get(), message.data(), kBytes) != static_cast<ssize_t>(kBytes))
        return Status::from_errno(errno, "read from the pipe");
  return static_cast<double>(messages) / watch.seconds();
}

}  // namespace

Benchmark ring_operations() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto time = options.run_time();
    return std::vector<Trial>{
        {"batches of 64 bytes, producer thread",
         "1/s",
         [time] { return batches_per_second(tiny_batches(Side::kThread), time); },
         {{"queue of 64 under a mutex", [time] { return queue_rate(time); }}}},
        {"batches of 64 bytes, producer process",
         "1/s",
         [time] { return batches_per_second(tiny_batches(Side::kProcess), time); },
         {{"pipe of 64 messages", [time] { return pipe_rate(time); }}}}};
  };
  return {"ring-operations", "tiny batches per second through the ring", prepare};
}

}  // namespace stoker::bench
