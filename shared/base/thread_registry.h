// Thread registry: the threads of this process with their full names and what each of them does.
//
// The kernel keeps 15 characters of a thread's name, and says whether the thread sleeps but not what
// it waits for. The owner of a thread therefore creates a ThreadRecord, and the thread says with a
// ScopedActivity what it does until the end of the block. Threads of libraries have no record;
// list_threads() only counts them.
//
// Threads:  begin(), end() and ScopedActivity in the thread itself; everything else in any thread.
// Blocking: never.
// Cost:     a ScopedActivity stores a pointer and reads the clock at both ends, so it belongs around
//           operations that can block, not around one sample.
// Owner:    a record is listed until it is destroyed; threads that have ended are shown as such.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace stoker {

enum class ThreadState {
  kNotStarted,
  kRunning,
  kSleeping,  // in the kernel, for example in a read
  kWaiting,   // for what the operation names
  kStopped,
  kFailed,  // stopped with an error
};
inline constexpr int kThreadStates = 6;
std::string_view to_string(ThreadState state);  // "not started", "running", …
bool is_live(ThreadState state);                // started and not ended

struct ThreadActivity {
  std::string_view operation;  // "write checkpoint"
  bool is_waiting = false;
};

struct ThreadList;

class ThreadRecord {
 public:
  // `queue`: the queue that the thread works for; empty: it is one of the process itself.
  explicit ThreadRecord(std::string name, std::string operation = {}, std::string queue = {});
  ~ThreadRecord();
  ThreadRecord(const ThreadRecord&) = delete;
  ThreadRecord& operator=(const ThreadRecord&) = delete;

  const std::string& name() const { return name_; }
  // Names the thread for ps and debuggers, except the main thread, whose name is the program's.
  void begin();
  void end(bool has_failed);

 private:
  friend class ScopedActivity;
  friend ThreadList list_records();

  void set_activity(const ThreadActivity* activity);

  // Constant after construction.
  const std::string name_;
  const std::string operation_;  // outside of a ScopedActivity
  const std::string queue_;

  ThreadRecord* outer_ = nullptr;  // of the same thread; used only by it

  // Written by the thread, read by list_threads(). `activity_` is released after what it refers to;
  // the others can be one change older or newer than it, for the time of a few instructions.
  std::atomic<const ThreadActivity*> activity_{nullptr};  // null: operation_
  std::atomic<int64_t> since_ns_;                         // Clock::monotonic()
  std::atomic<ThreadState> state_{ThreadState::kNotStarted};
  std::atomic<std::thread::id> thread_{};
  std::atomic<int> tid_{0};
};

// What the calling thread does until the end of the block. No effect in a thread without a record.
// `activity` must outlive the record; usually it is a constant of static storage.
class ScopedActivity {
 public:
  explicit ScopedActivity(const ThreadActivity& activity);
  explicit ScopedActivity(const ThreadActivity&&) = delete;
  ~ScopedActivity();
  ScopedActivity(const ScopedActivity&) = delete;
  ScopedActivity& operator=(const ScopedActivity&) = delete;

 private:
  ThreadRecord* const record_;
  const ThreadActivity* before_ = nullptr;
};

struct ThreadInfo {
  std::string name;
  std::thread::id thread;        // none: not started
  int tid = 0;                   // 0: not started
  bool is_queue_thread = false;  // works for a queue
  std::string queue;             // that it works for or waits for; empty: none
  std::string operation;         // empty: not known
  ThreadState state = ThreadState::kNotStarted;
  std::chrono::nanoseconds since{0};  // when the operation began, as Clock::monotonic()
};

struct ThreadList {
  std::vector<ThreadInfo> threads;  // in the order of their registration
  uint64_t library_threads = 0;     // that have no record
};

ThreadList list_threads();
// As list_threads(), without what only /proc has: a thread in a read is kRunning, and the threads of
// libraries are not counted. set_kernel_states() adds the states, also to a list of another process.
ThreadList list_records();
void set_kernel_states(int pid, ThreadList& list);

// At most 15 bytes: the longest words of `name` shortened, its numbers kept, so that the threads of
// a group remain distinct: "examples/enqueue-12" becomes "examp/enqueu-12".
std::string short_thread_name(std::string_view name);

}  // namespace stoker
