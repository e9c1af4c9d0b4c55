// Stacks of this process, by the real stoker-stacks and by programs that fail.
#include "daemon/service/stack_traces.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

// With a symbol in a stripped program, too: it is linked with -rdynamic.
extern "C" __attribute__((noinline)) void wait_until_set_for_test(std::atomic<bool>& set) {
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
  std::atomic<bool> set{false};
  std::thread other([&set] { wait_until_set_for_test(set); });
  const auto traces = collect_stack_traces(STOKER_STACKS, 60s);
  set = true;
  set.notify_all();
  other.join();
  ASSERT_TRUE(traces.ok()) << traces.status().to_string();
  if (!traces->missing.empty()) GTEST_SKIP() << traces->missing.front();
  EXPECT_THAT(traces->text,
              AllOf(HasSubstr("process " + std::to_string(::getpid())), HasSubstr("threads: 2"),
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
