// Stacks of this process, by the real stoker-stacks and by programs that fail.
#include "daemon/service/stack_traces.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <latch>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

// With a symbol in a stripped program, too: it is linked with -rdynamic. `inside`: the calling thread is
// in this function, until `set` is set.
extern "C" __attribute__((noinline)) void wait_until_set_for_test(std::latch& inside,
                                                                  std::atomic<bool>& set) {
  inside.count_down();
  set.wait(false);
  asm volatile("");  // no tail call
}

namespace stoker::service {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of this process.
size_t count_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(threads), end(threads)));
}

class StackTracesTest : public ::testing::Test {
 protected:
  // A script that gets the pid of this process.
  std::string script(const std::string& body) const {
    const std::string path = folder_ / "stacks";
    EXPECT_TRUE(
        write_file_atomically(default_file_system(), path, "#!/bin/sh\n" + body + "\n").ok());
    EXPECT_EQ(::chmod(path.c_str(), 0700), 0);
    return path;
  }

  test::TemporaryDirectory folder_;
};

TEST_F(StackTracesTest, NameFunctionsOfAllThreadsOfThisProcess) {
  std::latch inside{1};
  std::atomic<bool> set{false};
  std::thread other([&] { wait_until_set_for_test(inside, set); });
  inside.wait();
  const size_t num_threads = count_threads();  // a sanitizer can have its own
  const auto traces = collect_stack_traces(STOKER_STACKS, 60s);
  set = true;
  set.notify_all();
  other.join();
  ASSERT_TRUE(traces.ok()) << traces.status().to_string();
  if (!traces->missing.empty()) GTEST_SKIP() << traces->missing.front();
  EXPECT_THAT(traces->text,
              AllOf(HasSubstr("process " + std::to_string(::getpid())),
                    HasSubstr("threads: " + std::to_string(num_threads) + "\n"),
                    HasSubstr("wait_until_set_for_test+0x"), HasSubstr("libc.so.6+0x")));
}

TEST_F(StackTracesTest, ReportWhatProgramCouldNotRead) {
  const auto traces =
      collect_stack_traces(script("echo 'process '$1; echo 'note: no stack: reason'"), 60s);
  ASSERT_TRUE(traces.ok());
  EXPECT_THAT(traces->text, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(traces->missing, ::testing::ElementsAre("no stack: reason"));
}

TEST_F(StackTracesTest, KeepWhatProgramHasPrintedUntilTimeout) {
  const auto traces = collect_stack_traces(script("echo first; exec sleep 1000"), 200ms);
  ASSERT_TRUE(traces.ok());
  EXPECT_EQ(traces->text, "first\n");
  EXPECT_THAT(traces->missing, Contains(HasSubstr("has not ended")));
}

TEST_F(StackTracesTest, NameProgramThatCannotBeStarted) {
  const auto traces = collect_stack_traces(folder_ / "missing", 60s);
  EXPECT_EQ(traces.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(traces.status().message(), HasSubstr("missing"));
}

TEST_F(StackTracesTest, AreSavedOrReportWhyNot) {
  const std::string path = folder_ / "stacks.txt";
  EXPECT_TRUE(save_stack_traces(path, "text", 60s).ok());
  EXPECT_EQ(*read_file(path, 100), "text");
  EXPECT_FALSE(save_stack_traces(folder_ / "none/stacks.txt", "text", 60s).ok());
}

}  // namespace
}  // namespace stoker::service
