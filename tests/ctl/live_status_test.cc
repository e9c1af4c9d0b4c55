#include "ctl/live_status.h"

#include "shared/control/trainer_status.h"
#include "tests/ctl/fake_daemon.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;

class LiveStatusTest : public CtlTest {
 protected:
  FakeDaemon daemon(FakeDaemon::Reply reply, const std::string& run_dir) {
    const auto run = control::identify_run(run_dir);
    EXPECT_TRUE(run.ok());
    return FakeDaemon(layout().control_socket(), std::move(reply),
                      control::HelloReply{.stoker_version = "1", .role = "read", .run = *run});
  }
  static std::string reply_with(uint64_t step) {
    control::TrainerStatus status;
    status.step = step;
    return R"({"id":2,"result":)" + control::to_json(status) + "}";
  }

  ManualClock clock_;
};

TEST_F(LiveStatusTest, IsWhatDaemonReplies) {
  const auto fake = daemon([](const std::string&) { return reply_with(7); }, layout().root());
  LiveStatus status(clock_, layout());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(status.read().value_or(""), HasSubstr(R"("step":7,)"));
}

TEST_F(LiveStatusTest, ConnectsAgainAfterDaemonClosedConnection) {
  int requests = 0;
  const auto fake = daemon(
      [&](const std::string&) {
        return ++requests == 2 ? std::nullopt : std::optional(reply_with(7));
      },
      layout().root());
  LiveStatus status(clock_, layout());
  EXPECT_TRUE(status.read().has_value());
  EXPECT_TRUE(status.read().has_value());
}

TEST_F(LiveStatusTest, DoesNotAskSoonAgainAfterError) {
  LiveStatus status(clock_, layout());
  EXPECT_FALSE(status.read().has_value());
  const auto fake = daemon([](const std::string&) { return reply_with(7); }, layout().root());
  EXPECT_FALSE(status.read().has_value());
  clock_.advance(LiveStatus::kPause);
  EXPECT_TRUE(status.read().has_value());
}

TEST_F(LiveStatusTest, IsNotThatOfAnotherRunOrProgram) {
  {
    const auto fake = daemon([](const std::string&) { return reply_with(7); }, path("."));
    EXPECT_FALSE(LiveStatus(clock_, layout()).read().has_value());
  }
  std::filesystem::remove(layout().control_socket());
  const auto fake =
      daemon([](const std::string&) { return std::string(R"({"id":2,"result":"<script>"})"); },
             layout().root());
  EXPECT_FALSE(LiveStatus(clock_, layout()).read().has_value());
}

}  // namespace
}  // namespace stoker::ctl
