#include "daemon/service/event_commands.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::service {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Of a program, and of all at the end: longer than a slow machine needs.
constexpr std::chrono::hours kNoLimit{1};

class EventCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(init_log({.file = log_file(), .console = false}).ok()); }
  void TearDown() override {
    flush_log();
    ASSERT_TRUE(init_log({.console = false}).ok());
  }
  std::string log_file() const { return folder_ / "log"; }
  std::string log_text() const {
    flush_log();
    return *read_file(log_file(), 1 << 20);
  }
  // Appends its input to the file `out`.
  std::vector<std::string> recorder() const { return {"sh", "-c", "cat >> \"$0\"", out()}; }
  std::string out() const { return folder_ / "out"; }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::ifstream file(out());
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // The same, once the file `go` exists.
  std::vector<std::string> waiting_recorder() const {
    return {"sh", "-c", "until [ -e \"$1\" ]; do sleep 0.01; done; cat >> \"$0\"", out(),
            folder_ / "go"};
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(EventCommandsTest, PassesMatchingEventsInOrderAsJsonLines) {
  EventCommands commands({{.events = {"training *", "daemon failed"}, .command = recorder()}},
                         "/runs/a");
  log_info("training paused", {{"step", 7}});
  log_info("checkpoint saved", {{"step", 7}});
  log_error("daemon failed", {{"error", "a \"b\""}});
  log_info("daemon started", {{"run_dir", "x"}});
  commands.stop(kNoLimit);
  EXPECT_THAT(
      lines(),
      ElementsAre(AllOf(HasSubstr(R"("level":"info","event":"training paused","step":7,)"),
                        HasSubstr(R"("run_dir":"/runs/a"})"), HasSubstr(R"({"time":"20)")),
                  HasSubstr(R"("level":"error","event":"daemon failed","error":"a \"b\"")")));
}

TEST_F(EventCommandsTest, RunsFirstRuleThatMatches) {
  EventCommands commands({{.events = {"training paused"}, .command = {"true"}},
                          {.events = {"*"}, .command = recorder()}},
                         "r");
  log_info("training paused", {{"step", 1}});
  log_info("daemon started", {{"run_dir", "own"}});
  commands.stop(kNoLimit);
  EXPECT_THAT(lines(),
              ElementsAre(AllOf(HasSubstr("daemon started"), HasSubstr(R"("run_dir":"own"})"),
                                Not(HasSubstr(R"("run_dir":"r")")))));
}

TEST_F(EventCommandsTest, DoesNotDependOnLogLevel) {
  set_log_level(LogLevel::kError);
  EventCommands commands({{.events = {"*"}, .command = recorder()}}, "r");
  log_info("training paused", {{"step", 1}});
  log_debug("checkpoint deleted", {{"step", 1}});
  commands.stop(kNoLimit);
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("training paused")));
  EXPECT_THAT(log_text(), IsEmpty());
}

TEST_F(EventCommandsTest, LogsFailureWithoutRunningAProgramForIt) {
  EventCommands commands({{.events = {"*"}, .command = {"sh", "-c", "exit 3"}}}, "r");
  log_info("training paused", {{"step", 1}});
  commands.stop(kNoLimit);
  const std::string log = log_text();
  EXPECT_THAT(log, HasSubstr("event command failed for_event=\"training paused\" error=\"sh: exit "
                             "code 3\" duration_seconds="));
  EXPECT_EQ(log.find("event command failed"), log.rfind("event command failed"));
}

TEST_F(EventCommandsTest, TerminatesProgramAfterTimeout) {
  EventCommands commands({{.events = {"*"}, .command = {"sleep", "1000"}}}, "r", 50ms);
  log_info("training paused", {{"step", 1}});
  commands.stop(kNoLimit);
  EXPECT_THAT(log_text(), HasSubstr("sleep: terminated after 50 ms"));
}

TEST_F(EventCommandsTest, DropsAndCountsEventsBehindSlowProgram) {
  EventCommands commands({{.events = {"*"}, .command = waiting_recorder()}}, "r", kNoLimit);
  constexpr size_t kEvents = EventCommands::kCapacity + 10;
  for (size_t i = 0; i < kEvents; ++i) log_info("training paused", {{"step", i}});
  std::ofstream(folder_ / "go").close();
  commands.stop(kNoLimit);
  const size_t ran = lines().size();
  EXPECT_GE(ran, EventCommands::kCapacity);
  EXPECT_LE(ran, EventCommands::kCapacity + 1) << "the first one may have been taken meanwhile";
  EXPECT_THAT(log_text(), AllOf(HasSubstr("event command skipped for_event=\"training paused\" "
                                          "count=1"),
                                HasSubstr("event command skipped for_event=* count=" +
                                          std::to_string(kEvents - ran))));
}

TEST_F(EventCommandsTest, TerminatesProgramAndDropsEventsAtStop) {
  EventCommands commands({{.events = {"*"}, .command = {"sleep", "1000"}}}, "r");
  for (int i = 0; i < 3; ++i) log_info("training paused", {{"step", i}});
  commands.stop(0ms);
  const std::string log = log_text();
  EXPECT_THAT(log, HasSubstr("reason=\"stokerd exits\""));
  log_info("training paused", {{"step", 4}});  // no listener any more
  EXPECT_EQ(log.find("reason=\"stokerd exits\""), log.rfind("reason=\"stokerd exits\""));
}

TEST_F(EventCommandsTest, IgnoresEventThatIsStillBeingLoggedAtItsEnd) {
  std::latch logged(1), destroyed(1);
  // Called first.
  const EventListening slow([&](LogLevel, std::string_view event, Fields) {
    if (event != "training paused") return;
    logged.count_down();
    destroyed.wait();
  });
  auto commands = std::make_unique<EventCommands>(
      std::vector<config::EventCommand>{{.events = {"*"}, .command = recorder()}}, "r");
  std::thread logging([] { log_info("training paused", {{"step", 1}}); });
  logged.wait();
  commands.reset();
  destroyed.count_down();
  logging.join();
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(EventCommandsTest, DoesNothingWithoutRules) {
  EventCommands commands({}, "r");
  log_info("training paused", {{"step", 1}});
  commands.stop(kNoLimit);
  EXPECT_THAT(lines(), SizeIs(0));
}

}  // namespace
}  // namespace stoker::service
