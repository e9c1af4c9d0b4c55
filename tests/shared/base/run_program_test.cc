#include "shared/base/run_program.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "shared/base/descriptor_limit.h"
#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using namespace std::chrono_literals;

class RunProgramTest : public ::testing::Test {
 protected:
  const test::TemporaryDirectory folder_;
};

TEST_F(RunProgramTest, PassesArgumentsWithoutShell) {
  const std::string to = folder_ / "said";
  const Status ran = run_program(
      {"sh", "-c", "printf '%s|' \"$@\" > \"$0\"", to, "a b; $HOME", "/run/checkpoints/step-7"}, "",
      10s, {});
  ASSERT_TRUE(ran.ok()) << ran.to_string();
  EXPECT_EQ(*read_file(to, 1000), "a b; $HOME|/run/checkpoints/step-7|");
}

TEST_F(RunProgramTest, PassesInputOfAnySizeWhetherReadOrNot) {
  const std::string to = folder_ / "size";
  const std::string input(size_t{1} << 20, 'x');
  const Status read = run_program({"sh", "-c", "wc -c > \"$0\"", to}, input, 60s, {});
  ASSERT_TRUE(read.ok()) << read.to_string();
  EXPECT_EQ(std::stoi(*read_file(to, 1000)), 1 << 20);
  EXPECT_TRUE(run_program({"true"}, input, 60s, {}).ok());
  EXPECT_TRUE(run_program({"sh", "-c", "! read x"}, "", 60s, {}).ok()) << "empty";
}

TEST_F(RunProgramTest, ReportsProgramAndCauseOnFailure) {
  EXPECT_EQ(run_program({"sh", "-c", "exit 3"}, "", 60s, {}).message(), "sh: exit code 3");
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, "", 60s, {}).message(),
            "sh: killed by signal 9");
  const Status missing = run_program({"/no/such/program"}, "", 60s, {});
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/program"), std::string::npos);
}

TEST_F(RunProgramTest, KillsHungCommandWithItsChildren) {
  const Status ran = run_program(
      {"sh", "-c", "sleep 1000 & echo $! > \"$0\"; wait", folder_ / "pid"}, "", 300ms, {});
  EXPECT_EQ(ran.code(), StatusCode::kTimedOut);
  EXPECT_EQ(ran.message(), "sh: terminated after 300 ms");
}

TEST_F(RunProgramTest, RestoresDefaultSignalsForCommand) {
  for (const int number : {SIGPIPE, SIGXFSZ, SIGHUP}) {  // ignored by stokerd, or by nohup
    const auto previous = ::signal(number, SIG_IGN);
    EXPECT_EQ(
        run_program({"sh", "-c", "ulimit -c 0; kill -$0 $$", std::to_string(number)}, "", 60s, {})
            .message(),
        "sh: killed by signal " + std::to_string(number));
    ::signal(number, previous);
  }
}

// The program can see that of this process for an instant.
TEST_F(RunProgramTest, GivesFormerDescriptorLimitToCommand) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit lowered{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  raise_descriptor_limit();
  rlimit raised{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  const Status ran = run_program({"sh", "-c",
                                  "until [ $(ulimit -Sn) = 100 ]; do :; done; "
                                  "[ $(ulimit -Hn) = \"$0\" ]",
                                  std::to_string(before.rlim_max)},
                                 "", 60s, {});
  EXPECT_TRUE(ran.ok()) << ran.to_string();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(RunProgramTest, ClosesDescriptorsOfThisProcess) {
  const UniqueFd inherited(::dup(STDERR_FILENO));  // without close-on-exec
  ASSERT_TRUE(inherited.valid());
  const std::string path = "/proc/self/fd/" + std::to_string(inherited.get());
  const Status ran = run_program({"test", "!", "-e", path}, "", 60s, {});
  EXPECT_TRUE(ran.ok()) << ran.to_string();
}

TEST_F(RunProgramTest, CancelsCommandOnStop) {
  std::stop_source stop;
  stop.request_stop();
  const Status ran = run_program({"sh", "-c", "sleep 1000"}, "", 1000s, stop.get_token());
  EXPECT_EQ(ran.code(), StatusCode::kCancelled);
  EXPECT_EQ(ran.message(), "sh: stopped before it ended");
}

}  // namespace
}  // namespace stoker
