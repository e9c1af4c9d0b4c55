// run.on_event_command.
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include <gmock/gmock.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using EventCommandsRunTest = RunTest;

TEST_F(EventCommandsRunTest, ReportsStartAndEndOfRun) {
  const std::string config = write_config(small_config(
      "run: {on_event_command: [{events: \"daemon *\", command: [sh, -c, 'cat >> \"$0\"', " +
      path("events") + "]}]}\n"));
  ASSERT_EQ(
      train(config, run_dir(), {"--set", "train.max_steps=20", "--set", "log.level=error"}).code,
      0);
  EXPECT_THAT(text_of(path("events")),
              AllOf(HasSubstr(R"("event":"daemon started")"),
                    HasSubstr(R"("event":"daemon exited","state":"finished","step":20)"),
                    HasSubstr(R"("run_dir":")" + run_dir()), Not(HasSubstr("training started"))));
}

TEST_F(EventCommandsRunTest, IgnoresFailureOfProgram) {
  const std::string config = write_config(
      small_config("run: {on_event_command: [{events: \"*\", command: [/no/such/program]}]}\n"));
  EXPECT_EQ(train(config, run_dir(), {"--set", "train.max_steps=20"}).code, 0);
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("event command failed for_event=\"daemon exited\" error="));
}

// The program runs until its file is removed.
TEST_F(EventCommandsRunTest, EndsAtSignalWhileProgramRuns) {
  const std::string program = "echo > \"$0\"; while [ -e \"$0\" ]; do sleep 0.1; done";
  const std::string config = write_config(
      small_config("run: {on_event_command: [{events: \"daemon exited\", command: [sh, -c, '" +
                   program + "', " + path("events") + "]}]}\n"));
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=20"});
  ASSERT_TRUE(wait_until(60s, [&] { return ::access(path("events").c_str(), F_OK) == 0; }));
  trainer.signal(SIGTERM);
  ASSERT_TRUE(trainer.wait(kPatience).has_value());
  EXPECT_THAT(text_of(run_dir() + "/exit_status.json"), HasSubstr(R"("state":"finished")"));
  // After the 30 s that the program has, it would be a failure.
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("daemon exited"), Not(HasSubstr("event command failed"))));
}

}  // namespace
}  // namespace stoker::test
