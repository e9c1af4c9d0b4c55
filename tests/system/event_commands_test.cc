// run.on_event_command.
#include <gmock/gmock.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

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

}  // namespace
}  // namespace stoker::test
