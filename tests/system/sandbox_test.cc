// stokerd with workers that are not permitted to install their seccomp filter, as under a service
// manager or in a container whose own filter returns EPERM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SandboxTest : public RunTest {
 protected:
  Exit train_without_seccomp(const std::vector<std::string>& more) const {
    Process rejected(joined({STOKER_WITHOUT_CALLS, "EPERM:seccomp", program("stokerd"), "--config",
                             write_config(small_config()), "--run-dir", run_dir()},
                            more),
                     path("stokerd.out"));
    const auto exit = rejected.wait(90s);
    EXPECT_TRUE(exit.has_value()) << "it did not end";
    return exit.value_or(Exit{});
  }
};

TEST_F(SandboxTest, EndsWith78AndOneErrorWhenSeccompIsDenied) {
  EXPECT_EQ(train_without_seccomp({"--set", "feed.num_processes=2"}).code, 78);
  const std::string log = text_of(run_dir() + "/logs/stokerd.log");
  EXPECT_THAT(log, AllOf(HasSubstr("feed.sandbox: "), HasSubstr("add SystemCallFilter=seccomp"),
                         HasSubstr("set feed.sandbox: false")));
  EXPECT_THAT(log, Not(HasSubstr("worker process crashed")));
  EXPECT_EQ(count_of(log_of("stokerd"), " error "), 1u) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("Operation not permitted"));
  EXPECT_THAT(text_of(run_dir() + "/exit_status.json"), HasSubstr("\"exit_code\":78"));
}

TEST_F(SandboxTest, DoesNotCountDeniedStartsAsFailedStarts) {
  for (int start = 0; start < 5; ++start) ASSERT_EQ(train_without_seccomp({}).code, 78) << start;
}

TEST_F(SandboxTest, TrainsWithoutSeccompWhenFilterIsOff) {
  EXPECT_EQ(train_without_seccomp({"--set", "feed.sandbox=false"}).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 400u);
}

}  // namespace
}  // namespace stoker::test
