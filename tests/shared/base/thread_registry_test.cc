#include "shared/base/thread_registry.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "tests/support/eventually.h"

namespace stoker {
namespace {

constexpr ThreadActivity kWaitForData{.operation = "wait for data", .is_waiting = true};
constexpr ThreadActivity kWriteData{.operation = "write data"};

std::optional<ThreadInfo> find_thread(const std::string& name) {
  for (const ThreadInfo& thread : list_threads().threads)
    if (thread.name == name) return thread;
  return std::nullopt;
}

std::string kernel_name() {
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

TEST(ThreadRegistryTest, ListsRecordFromCreationToDestruction) {
  {
    ThreadRecord record("examples/enqueue-0", "enqueue", "examples");
    auto thread = find_thread("examples/enqueue-0");
    ASSERT_TRUE(thread.has_value());
    EXPECT_EQ(thread->state, ThreadState::kNotStarted);
    EXPECT_EQ(thread->tid, 0);
    EXPECT_TRUE(thread->is_queue_thread);
    EXPECT_EQ(thread->queue, "examples");
    EXPECT_EQ(thread->operation, "enqueue");
    std::jthread([&] {
      record.begin();
      thread = find_thread("examples/enqueue-0");
      EXPECT_EQ(kernel_name(), "exampl/enqueu-0");
      record.end(true);
    }).join();
    EXPECT_EQ(thread->state, ThreadState::kRunning);
    EXPECT_GT(thread->tid, 0);
    EXPECT_EQ(find_thread("examples/enqueue-0")->state, ThreadState::kFailed);
  }
  EXPECT_FALSE(find_thread("examples/enqueue-0").has_value());
}

TEST(ThreadRegistryTest, ShowsInnermostActivityAndItsStart) {
  std::jthread([] {
    ThreadRecord record("writer", "idle");
    record.begin();
    const auto before = system_clock().monotonic();
    {
      const ScopedActivity writing(kWriteData);
      EXPECT_EQ(find_thread("writer")->operation, "write data");
      EXPECT_EQ(find_thread("writer")->state, ThreadState::kRunning);
      const ScopedActivity waiting(kWaitForData);
      const auto thread = find_thread("writer");
      EXPECT_EQ(thread->operation, "wait for data");
      EXPECT_EQ(thread->state, ThreadState::kWaiting);
      EXPECT_GE(thread->since, before);
      EXPECT_LE(thread->since, system_clock().monotonic());
    }
    EXPECT_EQ(find_thread("writer")->operation, "idle");
    EXPECT_EQ(find_thread("writer")->state, ThreadState::kRunning);
    record.end(false);
    EXPECT_EQ(find_thread("writer")->state, ThreadState::kStopped);
  }).join();
}

TEST(ThreadRegistryTest, ShowsThreadInReadAsSleeping) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd source(ends[0]);
  UniqueFd writer(ends[1]);
  ThreadRecord record("reader", "read");
  std::jthread reader([&] {
    record.begin();
    char byte = 0;
    EXPECT_EQ(::read(source.get(), &byte, 1), 0);
    record.end(false);
  });
  EXPECT_TRUE(
      test::eventually([] { return find_thread("reader")->state == ThreadState::kSleeping; }));
  writer.reset();
}

TEST(ThreadRegistryTest, CountsThreadsWithoutRecord) {
  std::latch started(1), counted(1), registered(1), release(1);
  std::jthread thread([&] {
    started.count_down();
    counted.wait();
    ThreadRecord record("registered", "wait");
    record.begin();
    registered.count_down();
    release.wait();
  });
  started.wait();
  const uint64_t before = list_threads().library_threads;  // the main thread is one of them
  EXPECT_GE(before, 2u);
  counted.count_down();
  registered.wait();
  EXPECT_LT(list_threads().library_threads, before);
  release.count_down();
}

TEST(ThreadRegistryTest, KeepsNameOfMainThread) {
  const std::string before = kernel_name();
  ThreadRecord record("main", "serve events");
  record.begin();
  EXPECT_EQ(kernel_name(), before);
  EXPECT_EQ(find_thread("main")->tid, ::getpid());
  record.end(false);
}

TEST(ThreadRegistryTest, IgnoresActivityOfThreadWithoutRecord) {
  const ScopedActivity waiting(kWaitForData);
  EXPECT_TRUE(std::ranges::none_of(list_threads().threads, [](const ThreadInfo& thread) {
    return thread.operation == kWaitForData.operation;
  }));
}

TEST(ShortThreadNameTest, ShortensLongestWordsAndKeepsNumbers) {
  EXPECT_EQ(short_thread_name("feed-supervisor"), "feed-supervisor");
  EXPECT_EQ(short_thread_name("examples/enqueue-12"), "examp/enqueu-12");
  EXPECT_EQ(short_thread_name("filename_queue/enqueue-3"), "fil_queu/enqu-3");
  EXPECT_EQ(short_thread_name("filename_queue/close"), "file_queu/close");
  EXPECT_EQ(short_thread_name("shuffle_batch/random_shuffle_queue/enqueue-3"), "s_b/r_s_qu/en-3");
  // More separators and digits than fit: the end.
  EXPECT_EQ(short_thread_name("1234567890-1234567890"), "7890-1234567890");
  // Whole characters, of two bytes each.
  EXPECT_EQ(short_thread_name("äääääääääää-1"), "ääääää-1");
}

}  // namespace
}  // namespace stoker
