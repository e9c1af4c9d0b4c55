// Events and status that clients get without asking, jobs, and requests about files.
#include <latch>

#include <gmock/gmock.h>

#include "shared/base/log.h"
#include "shared/control/protocol.h"
#include "shared/control/trainer_status.h"
#include "tests/daemon/server/control_fixture.h"
#include "tests/support/eventually.h"

namespace stoker::server {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;
using Counters = control::TrainerStatus::Control;

constexpr const char* kSubscribed = R"({"id":null,"result":{}})";

class SubscriptionTest : public ControlServerTest {
 protected:
  // Logs an event on a thread that is not the server's.
  static void log_saved(uint64_t step) { log_info("checkpoint saved", {{"step", step}}); }
  static std::string saved(uint64_t step) {
    return R"("event":"checkpoint saved","step":)" + std::to_string(step) + "}}";
  }
};

TEST_F(SubscriptionTest, SendsEventsFromSubscriptionOn) {
  start_serving();
  auto peer = client();
  log_saved(1);
  EXPECT_EQ(peer.request("subscribe"), kSubscribed);
  log_saved(2);
  const std::string line = peer.read_line();
  EXPECT_THAT(line, AllOf(StartsWith(R"({"method":"event","params":{"time":")"),
                          HasSubstr(R"("level":"info")"), HasSubstr(saved(2))));
  EXPECT_TRUE(control::parse_notification(line).ok());
  EXPECT_THAT(peer.request(R"({"id":7,"method":"hello"})"), StartsWith(R"({"id":7,"result")"));
}

TEST_F(SubscriptionTest, SendsEventsThatMatchPatternToEachClient) {
  start_serving();
  auto saves = client(), reloads = client(), none = client();
  EXPECT_EQ(saves.request("subscribe checkpoint*"), kSubscribed);
  EXPECT_EQ(reloads.request(R"({"method":"subscribe","params":{"events":"*reloaded"}})"),
            kSubscribed);
  EXPECT_EQ(none.request(R"({"method":"subscribe","params":{"events":""}})"), kSubscribed);
  log_saved(1);
  log_info("configuration reloaded", {{"log.level", "info"}});
  log_saved(2);
  EXPECT_THAT(saves.read_line(), HasSubstr(saved(1)));
  EXPECT_THAT(saves.read_line(), HasSubstr(saved(2)));
  EXPECT_THAT(reloads.read_line(), HasSubstr("configuration reloaded"));
  EXPECT_THAT(none.request("status"), HasSubstr("\"state\"")) << "nothing came before";
}

TEST_F(SubscriptionTest, SendsNoTextsToReaders) {
  options_.peer_of = [](int) { return Result<Peer>(Peer{.uid = 4242}); };
  start_serving();
  auto reader = client();
  EXPECT_EQ(reader.request("subscribe"), kSubscribed);
  log_info("checkpoint saved", {{"step", 7}, {"path", "/secret"}, {"duration_seconds", 0.5}});
  const std::string line = reader.read_line();
  EXPECT_THAT(line, HasSubstr(R"("event":"checkpoint saved","step":7,"duration_seconds":0.5}})"));
  EXPECT_THAT(line, StartsWith(R"({"method":"event","params":{"time":")"));
  EXPECT_TRUE(control::parse_notification(line).ok());
}

TEST_F(SubscriptionTest, LaterSubscriptionReplacesEarlierOne) {
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("subscribe"), kSubscribed);
  EXPECT_EQ(peer.request("subscribe nothing"), kSubscribed);
  log_saved(1);
  EXPECT_EQ(peer.request("subscribe *"), kSubscribed);
  log_saved(2);
  EXPECT_THAT(peer.read_line(), HasSubstr(saved(2)));
}

TEST_F(SubscriptionTest, SendsStatusAtInterval) {
  options_.limits.status_period = 1ms;
  training_.publish({.state = control::TrainerState::kTraining, .step = 7});
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send(R"({"method":"subscribe","params":{"events":"","status_seconds":2}})"
                        "\n"));
  EXPECT_EQ(peer.read_line(), kSubscribed);
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(peer.read_line(),
                AllOf(StartsWith(R"({"method":"status","params":{"state":"training","step":7,)")));
}

TEST_F(SubscriptionTest, RejectsInvalidSubscription) {
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("subscribe * x"), HasSubstr("status_seconds must be an integer"));
  EXPECT_THAT(peer.request("subscribe * 3601"), HasSubstr("from 0 to 3600"));
  EXPECT_THAT(peer.request(R"({"method":"subscribe","params":{"events":1}})"),
              HasSubstr("events must be a string"));
}

TEST_F(SubscriptionTest, SubscriberNeedNotSendRequests) {
  options_.limits.idle_time = 5ms;
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("subscribe"), kSubscribed);
  auto idle = client();
  EXPECT_THAT(idle.read_line(), HasSubstr("no request for"));  // so the idle time has passed
  log_saved(1);
  EXPECT_THAT(peer.read_line(), HasSubstr(saved(1)));
}

TEST_F(SubscriptionTest, ServesHalfClosedSubscriber) {
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("subscribe\n"));
  peer.shutdown_send();
  EXPECT_EQ(peer.read_line(), kSubscribed);
  log_saved(1);
  EXPECT_THAT(peer.read_line(), HasSubstr(saved(1)));
  peer.close();
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections == 0; }));
}

// Logging never waits for the clients: it is done on this thread.
TEST_F(SubscriptionTest, DisconnectsSubscriberThatNeverReads) {
  options_.limits.unsent_bytes = 64 << 10;
  start_serving();
  auto stalled = client(), other = client();
  EXPECT_EQ(stalled.request("subscribe"), kSubscribed);
  const auto dropped = [](const Counters& now) { return now.connections_dropped == 1; };
  test::Patience patience(60s);
  while (!dropped(counters()) && !patience.is_over()) {
    for (uint64_t step = 0; step < 100; ++step)
      log_info("checkpoint saved", {{"path", std::string(1000, 'x')}});
    ASSERT_THAT(other.request("status"), HasSubstr("\"state\""));
  }
  EXPECT_TRUE(dropped(counters()));
}

TEST_F(SubscriptionTest, DisconnectsSubscriberThatStopsReadingAfterIdleTime) {
  options_.limits.idle_time = 20ms;
  options_.limits.unsent_bytes = 64 << 20;
  start_serving();
  auto stalled = client();
  EXPECT_EQ(stalled.request("subscribe"), kSubscribed);
  for (int i = 0; i < 200; ++i) {  // more than the kernel's buffer, less than the limit
    log_info("checkpoint saved", {{"path", std::string(4000, 'x')}});
    (void)counters();  // the server has taken it
  }
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections_dropped == 1; }));
}

TEST_F(SubscriptionTest, CountsEventsThatServerCannotTake) {
  open();  // the server does not run yet
  auto peer = client();
  ASSERT_TRUE(peer.send("subscribe\n"));
  run();
  EXPECT_EQ(peer.read_line(), kSubscribed);
  std::latch blocked(1), release(1);
  post([&] {
    blocked.count_down();
    release.wait();
  });
  blocked.wait();
  for (uint64_t step = 0; step < 300; ++step) log_saved(step);
  release.count_down();
  for (uint64_t step = 0; step < 256; ++step) ASSERT_THAT(peer.read_line(), HasSubstr(saved(step)));
  EXPECT_EQ(peer.read_line(), R"({"method":"events_dropped","params":{"count":44}})");
}

TEST_F(SubscriptionTest, TellsSubscriberThatDaemonStops) {
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("subscribe"), kSubscribed);
  stop();
  EXPECT_THAT(peer.read_line(), AllOf(HasSubstr("shutting down"), HasSubstr(R"("kind":"closed")")));
  log_saved(1);
  EXPECT_TRUE(peer.is_closed());
}

// ---- Jobs

TEST_F(SubscriptionTest, NumbersLongCommandsAndReportsTheirEnd) {
  training_.withhold_replies();
  start_serving();
  auto peer = client(), watcher = client();
  EXPECT_EQ(watcher.request(R"({"method":"subscribe","params":{"events":"*"}})"), kSubscribed);
  EXPECT_EQ(peer.request(R"({"id":1,"method":"checkpoint","params":{"wait":false}})"),
            R"({"id":1,"result":{"job":1}})");
  EXPECT_THAT(watcher.read_line(),
              HasSubstr(R"("event":"job started","job":1,"command":"checkpoint")"));
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  pending[0](Status(StatusCode::kNoSpace, "the disk is full"));
  EXPECT_THAT(watcher.read_line(),
              AllOf(HasSubstr(R"("level":"warning")"), HasSubstr(R"("command":"checkpoint")"),
                    HasSubstr("the disk is full"), HasSubstr(R"("job":1)")));
  ASSERT_TRUE(peer.send("{\"id\":2,\"method\":\"profile\",\"params\":{\"steps\":5}}\n"));
  pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  pending[0](std::string(R"({"first_step":3})"));
  EXPECT_EQ(peer.read_line(), R"({"id":2,"result":{"first_step":3,"job":2}})");
}

TEST_F(SubscriptionTest, ReportsProgressOfJobAtMostOnceASecondAndPerTenth) {
  start_serving();
  auto watcher = client();
  ASSERT_EQ(watcher.request("subscribe job*"), kSubscribed);
  training_.withhold_replies();
  auto peer = client();
  ASSERT_TRUE(peer.send("{\"id\":1,\"method\":\"checkpoint\"}\n"));
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  EXPECT_THAT(watcher.read_line(), HasSubstr("job started"));
  const auto progress = training_.on_progress();
  ASSERT_TRUE(progress);
  progress(10, 1000);  // the job has just started
  clock_.advance(std::chrono::seconds(1));
  progress(500, 1000);
  EXPECT_THAT(watcher.read_line(),
              AllOf(HasSubstr(R"("event":"job progress")"), HasSubstr(R"("job":1)"),
                    HasSubstr(R"("done":500)"), HasSubstr(R"("total":1000)"),
                    HasSubstr(R"("unit":"bytes")")));
  progress(700, 1000);  // within the same second
  clock_.advance(std::chrono::seconds(5));
  progress(550, 1000);  // less than before: another attempt
  progress(560, 1000);  // in the same second
  EXPECT_THAT(watcher.read_line(), HasSubstr(R"("done":550)"));
  clock_.advance(std::chrono::seconds(5));
  progress(600, 1000);  // not a tenth more
  progress(650, 1000);
  EXPECT_THAT(watcher.read_line(), HasSubstr(R"("done":650)"));
  clock_.advance(std::chrono::seconds(5));
  progress(1000, 1000);  // the reply says so
  pending[0](std::string(R"({"step":3})"));
  EXPECT_EQ(peer.read_line(), R"({"id":1,"result":{"step":3,"job":1}})");
}

// ---- Files and configuration

class FileRequestsTest : public ControlServerTest {
 protected:
  FileRequestsTest() {
    options_.execute_file_request = [this](const control::FileRequest& request,
                                           const std::stop_token&) {
      requests_.push_back(request);  // read after the reply
      if (blocks_) {
        started_.count_down();
        release_.wait();
      }
      return Result<std::string>(R"({"text":"a\n"})");
    };
  }
  std::vector<control::FileRequest> requests_;
  bool blocks_ = false;
  std::latch started_{1}, release_{1};
};

TEST_F(FileRequestsTest, ExecutesRequestsOnItsThread) {
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("logs"), R"({"id":null,"result":{"text":"a\n"}})");
  EXPECT_EQ(peer.request(R"({"id":1,"method":"logs","params":{"lines":3,"rank":2}})"),
            R"({"id":1,"result":{"text":"a\n"}})");
  EXPECT_THAT(peer.request("evaluate 1200"), HasSubstr("result"));
  EXPECT_THAT(peer.request("show_batch 7 1000"), HasSubstr("result"));
  EXPECT_THAT(requests_, ElementsAre(control::FileRequest(control::ReadLogs{}),
                                     control::FileRequest(control::ReadLogs{.lines = 3, .rank = 2}),
                                     control::FileRequest(control::Evaluate{1200}),
                                     control::FileRequest(control::ShowBatch{7, 1000})));
}

TEST_F(FileRequestsTest, CountsOnlyEvaluationsAsChanges) {
  options_.limits.changes_per_s = 1;
  start_serving();
  auto peer = client();
  for (int request = 0; request < 3; ++request)
    EXPECT_THAT(peer.request("show_batch 7"), HasSubstr("result"));
  EXPECT_THAT(peer.request("evaluate 5"), HasSubstr("result"));
  EXPECT_THAT(peer.request("evaluate 5"), HasSubstr("busy"));
  EXPECT_THAT(peer.request("logs"), HasSubstr("result"));
}

TEST_F(FileRequestsTest, AnswersOthersWhileDiskIsSlow) {
  blocks_ = true;
  options_.limits.file_requests = 1;
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("{\"id\":1,\"method\":\"logs\"}\n"));
  started_.wait();
  ASSERT_TRUE(peer.send("{\"id\":2,\"method\":\"logs\"}\n"));  // waits
  EXPECT_THAT(peer.request(R"({"id":3,"method":"logs"})"),
              AllOf(StartsWith(R"({"id":3,"error")"), HasSubstr("busy")));
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
  blocks_ = false;
  release_.count_down();
  EXPECT_THAT(peer.read_line(), StartsWith(R"({"id":1,"result")"));
  EXPECT_THAT(peer.read_line(), StartsWith(R"({"id":2,"result")"));
}

TEST_F(FileRequestsTest, AnswersRequestsAfterException) {
  options_.execute_file_request = [](const control::FileRequest& request,
                                     const std::stop_token&) -> Result<std::string> {
    if (std::holds_alternative<control::Evaluate>(request)) throw std::bad_alloc();
    return std::string("{}");
  };
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("evaluate 5"), HasSubstr("\"error\""));
  EXPECT_EQ(peer.request("logs"), kSubscribed) << "an empty object";
}

TEST_F(FileRequestsTest, ReadersMayNeitherReadLogsNorReload) {
  options_.peer_of = [](int) { return Result<Peer>(Peer{.uid = 4242}); };
  int reloads = 0;
  options_.reload = [&](bool) { return ++reloads, Result<std::string>("{}"); };
  start_serving();
  auto peer = client();
  for (const char* const line : {"logs", "evaluate 5", "show_batch 5", "reload"})
    EXPECT_THAT(peer.request(line), HasSubstr("not permitted")) << line;
  EXPECT_EQ(peer.request("subscribe"), kSubscribed);
  EXPECT_TRUE(requests_.empty());
  EXPECT_EQ(reloads, 0);
}

TEST_F(FileRequestsTest, ReloadReturnsErrorOfConfiguration) {
  Result<std::string> reloaded = std::string("{}");
  options_.reload = [&](bool) { return reloaded; };
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("reload"), R"({"id":null,"result":{}})");
  reloaded = Status(StatusCode::kInvalidArgument, "stoker.yaml:3: unknown key");
  EXPECT_THAT(peer.request("reload"), HasSubstr("stoker.yaml:3: unknown key"));
}

TEST_F(FileRequestsTest, DryRunReportsWithoutChangeInLog) {
  std::vector<bool> dry_runs;
  options_.reload = [&](bool is_dry_run) {
    dry_runs.push_back(is_dry_run);
    return Result<std::string>(R"({"changes":[]})");
  };
  start_serving();
  auto watcher = client();
  ASSERT_EQ(watcher.request("subscribe control*"), kSubscribed);
  auto peer = client();
  EXPECT_EQ(peer.request(R"({"id":1,"method":"reload","params":{"dry_run":true}})"),
            R"({"id":1,"result":{"changes":[]}})");
  EXPECT_THAT(peer.request(R"({"id":2,"method":"set","params":)"
                           R"({"key":"optimizer.lr","value":1,"dry_run":true}})"),
              HasSubstr("result"));
  EXPECT_THAT(peer.request("reload"), HasSubstr("result"));
  EXPECT_THAT(watcher.read_line(), HasSubstr(R"("command":"reload")")) << "the only change";
  EXPECT_THAT(dry_runs, ElementsAre(true, false));
  EXPECT_THAT(training_.commands(),
              ElementsAre(control::Command(control::SetSetting{"optimizer.lr", "1", true})));
}

// ---- Versions

TEST_F(FileRequestsTest, TellsClientOfVersion1WhatToUse) {
  start_serving();
  auto peer = client();
  for (const char* const line : {"tap blocks.*", "tap_rows 3", "untap 3", "hello 1"})
    EXPECT_THAT(peer.request(line), AllOf(HasSubstr("protocol version 2"), HasSubstr("version 1"),
                                          HasSubstr("use the stokerctl of this stokerd's release")))
        << line;
  EXPECT_THAT(peer.request("hello 2"), HasSubstr(R"("protocol_version":2)"));
}

}  // namespace
}  // namespace stoker::server
