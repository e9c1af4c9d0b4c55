#include "shared/base/thread_registry.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <filesystem>
#include <list>
#include <mutex>
#include <set>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/file.h"

namespace stoker {
namespace {

constexpr size_t kKernelNameBytes = 15;

constexpr std::array<std::string_view, kThreadStates> kStateNames = {
    "not started", "running", "sleeping", "waiting", "stopped", "failed"};

struct Registry {
  std::mutex mutex;
  std::list<const ThreadRecord*> records;  // guarded by mutex
};

Registry& registry() {
  // Never destroyed, because threads can end while the program exits.
  static Registry* const instance = new Registry;
  return *instance;
}

thread_local ThreadRecord* current_record = nullptr;

int64_t monotonic_ns() { return system_clock().monotonic().count(); }

// The state letter of a thread in the kernel: 'R' is running or ready to run. 0 if it has ended.
char kernel_state(int pid, int tid) {
  const std::string path =
      "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/stat";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char text[128];
  const ssize_t bytes = ::read(file.get(), text, sizeof text);
  if (bytes <= 0) return 0;
  // "4711 (name) S …": the name can contain parentheses.
  const std::string_view line(text, static_cast<size_t>(bytes));
  const size_t end_of_name = line.rfind(')');
  return end_of_name == std::string_view::npos || end_of_name + 2 >= line.size()
             ? '\0'
             : line[end_of_name + 2];
}

uint64_t count_kernel_threads() {
  std::error_code error;
  uint64_t count = 0;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end;
       !error && task != end; task.increment(error))
    ++count;
  return count;
}

// ---- Short names

struct NamePart {
  std::string text;
  bool can_shorten = false;  // a word; separators and numbers are kept
};

std::vector<NamePart> split_name(std::string_view name) {
  std::vector<NamePart> parts;
  enum class Kind { kNone, kWord, kNumber, kSeparator } last = Kind::kNone;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const Kind kind = std::isdigit(byte) != 0                  ? Kind::kNumber
                      : std::isalpha(byte) != 0 || byte >= 128 ? Kind::kWord
                                                               : Kind::kSeparator;
    if (kind != last) parts.push_back({.text = "", .can_shorten = kind == Kind::kWord});
    parts.back().text += c;
    last = kind;
  }
  return parts;
}

void remove_last_character(std::string& text) {
  const auto is_continuation = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  };
  while (text.size() > 1 && is_continuation(text.back())) text.pop_back();
  text.pop_back();
}

}  // namespace

std::string_view to_string(ThreadState state) { return kStateNames.at(static_cast<size_t>(state)); }

bool is_live(ThreadState state) {
  switch (state) {
    case ThreadState::kRunning:
    case ThreadState::kSleeping:
    case ThreadState::kWaiting:
      return true;
    case ThreadState::kNotStarted:
    case ThreadState::kStopped:
    case ThreadState::kFailed:
      return false;
  }
  return false;
}

std::string short_thread_name(std::string_view name) {
  std::vector<NamePart> parts = split_name(name);
  size_t bytes = name.size();
  const auto shortenable_bytes = [](const NamePart& part) {
    return part.can_shorten ? part.text.size() : 0;
  };
  while (bytes > kKernelNameBytes) {
    const auto longest = std::ranges::max_element(parts, {}, shortenable_bytes);
    if (shortenable_bytes(*longest) <= 1) break;
    bytes -= longest->text.size();
    remove_last_character(longest->text);
    bytes += longest->text.size();
  }
  std::string result;
  for (const NamePart& part : parts) result += part.text;
  // Too many words or digits: the end distinguishes the threads of a group.
  return result.size() <= kKernelNameBytes ? result
                                           : result.substr(result.size() - kKernelNameBytes);
}

// ---- ThreadRecord

ThreadRecord::ThreadRecord(std::string name, std::string operation, std::string queue)
    : name_(std::move(name)),
      operation_(std::move(operation)),
      queue_(std::move(queue)),
      since_ns_(monotonic_ns()) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.records.push_back(this);
}

ThreadRecord::~ThreadRecord() {
  if (current_record == this) current_record = outer_;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.records.remove(this);
}

void ThreadRecord::begin() {
  assert(state_.load(std::memory_order_relaxed) == ThreadState::kNotStarted);
  outer_ = std::exchange(current_record, this);
  const int tid = ::gettid();
  if (tid != ::getpid()) ::pthread_setname_np(::pthread_self(), short_thread_name(name_).c_str());
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  tid_.store(tid, std::memory_order_relaxed);
  since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  state_.store(ThreadState::kRunning, std::memory_order_release);
}

void ThreadRecord::end(bool has_failed) {
  assert(current_record == this);
  current_record = outer_;
  since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  state_.store(has_failed ? ThreadState::kFailed : ThreadState::kStopped,
               std::memory_order_release);
}

void ThreadRecord::set_activity(const ThreadActivity* activity) {
  since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  activity_.store(activity, std::memory_order_release);
}

ScopedActivity::ScopedActivity(const ThreadActivity& activity) : record_(current_record) {
  if (record_ == nullptr) return;
  before_ = record_->activity_.load(std::memory_order_relaxed);
  record_->set_activity(&activity);
}

ScopedActivity::~ScopedActivity() {
  if (record_ != nullptr) record_->set_activity(before_);
}

// ---- Table

ThreadList list_records() {
  ThreadList list;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const ThreadRecord* record : all.records) {
    ThreadInfo thread{.name = record->name_,
                      .is_queue_thread = !record->queue_.empty(),
                      .queue = record->queue_,
                      .operation = record->operation_};
    thread.state = record->state_.load(std::memory_order_acquire);
    thread.thread = record->thread_.load(std::memory_order_relaxed);
    thread.tid = record->tid_.load(std::memory_order_relaxed);
    const ThreadActivity* const activity = record->activity_.load(std::memory_order_acquire);
    thread.since = std::chrono::nanoseconds(record->since_ns_.load(std::memory_order_relaxed));
    if (activity != nullptr) {
      thread.operation = activity->operation;
      if (activity->is_waiting && thread.state == ThreadState::kRunning)
        thread.state = ThreadState::kWaiting;
    }
    list.threads.push_back(std::move(thread));
  }
  return list;
}

void set_kernel_states(int pid, ThreadList& list) {
  for (ThreadInfo& thread : list.threads) {
    if (thread.state != ThreadState::kRunning) continue;
    const char state = kernel_state(pid, thread.tid);
    if (state != 0 && state != 'R') thread.state = ThreadState::kSleeping;
  }
}

ThreadList list_threads() {
  ThreadList list = list_records();
  const uint64_t in_kernel = count_kernel_threads();
  set_kernel_states(::getpid(), list);
  std::set<int> live;
  for (const ThreadInfo& thread : list.threads)
    if (is_live(thread.state)) live.insert(thread.tid);
  list.library_threads = in_kernel - std::min<uint64_t>(in_kernel, live.size());
  return list;
}

}  // namespace stoker
