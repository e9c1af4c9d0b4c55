// Limits of one connection: lines, time, memory, requests.
#include <random>

#include <gmock/gmock.h>

#include "shared/control/protocol.h"
#include "tests/daemon/control/control_fixture.h"

namespace stoker::control {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Counters = control::TrainerStatus::Control;

class ConnectionLimitsTest : public ControlServerTest {
 protected:
  bool eventually_nobody_is_connected() {
    return eventually(
        [](const Counters& now) { return now.connections_accepted > 0 && now.connections == 0; });
  }
};

TEST_F(ConnectionLimitsTest, AcceptsLineOfMaximumLength) {
  serve();
  auto peer = client();
  const std::string status = "status" + std::string(control::kMaxLineBytes - 6, ' ');
  EXPECT_THAT(peer.ask(status), HasSubstr("\"state\""));
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\"")) << "and the connection continues";
}

TEST_F(ConnectionLimitsTest, DisconnectsAfterLineExceedsMaximumLength) {
  serve();
  for (const size_t bytes : {control::kMaxLineBytes + 1, size_t{1} << 20}) {
    auto peer = client();
    (void)peer.send(std::string(bytes, ' ') + "\nstop\n");
    EXPECT_THAT(peer.read_line(), AllOf(HasSubstr("-32600"), HasSubstr("longer than 65536 bytes")));
    EXPECT_TRUE(peer.is_ended());
  }
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections_dropped == 2; }));
  EXPECT_THAT(training_.commands(), IsEmpty()) << "what followed the line was not done";
}

TEST_F(ConnectionLimitsTest, RepliesOnceAndDisconnectsOnMalformedJson) {
  serve();
  for (const std::string& line : {std::string("{"), std::string(R"({"method":"stop"}})"),
                                  std::string(70, '{'), std::string("\x16\x03\x01\x02"),
                                  std::string("sto\0p", 5), std::string("{\"a\":\"\xff\"}")}) {
    auto peer = client();
    ASSERT_TRUE(peer.send(line + "\nstop\n"));
    EXPECT_THAT(peer.read_line(), HasSubstr("-32700"));
    EXPECT_TRUE(peer.is_ended());
  }
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionLimitsTest, IgnoresLineWithoutNewline) {
  serve();
  auto gone = client();
  ASSERT_TRUE(gone.send("stop"));
  gone.close();
  auto half_closed = client();
  ASSERT_TRUE(half_closed.send("{\"method\":\"stop\"}"));
  half_closed.send_no_more();
  EXPECT_THAT(half_closed.read_line(), HasSubstr("no newline; nothing was done"));
  EXPECT_TRUE(half_closed.is_ended());
  EXPECT_TRUE(eventually_nobody_is_connected());
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionLimitsTest, DisconnectsOnLineTimeout) {
  options_.limits.line_time = 5ms;
  serve();
  auto peer = client();
  ASSERT_TRUE(peer.send("sta"));
  EXPECT_THAT(peer.read_line(), AllOf(HasSubstr("not finished"), HasSubstr("timed out")));
  EXPECT_TRUE(peer.is_ended());
}

TEST_F(ConnectionLimitsTest, DisconnectsIdleClient) {
  options_.limits.idle_time = 5ms;
  serve();
  auto peer = client();
  EXPECT_THAT(peer.read_line(), HasSubstr("no request for 0.005 s"));
  EXPECT_TRUE(peer.is_ended());
}

TEST_F(ConnectionLimitsTest, DoesNotTimeOutClientWithPendingReply) {
  options_.limits.idle_time = 5ms;
  training_.hold();
  open();
  auto waiting = client();
  ASSERT_TRUE(waiting.send("checkpoint\n"));  // arrives before the server starts to read
  run();
  auto held = training_.take_held(1);
  ASSERT_THAT(held, SizeIs(1));
  auto idle = client();
  EXPECT_THAT(idle.read_line(), HasSubstr("no request for"));  // so the idle time has passed
  held[0](std::string(R"({"step":4})"));
  EXPECT_EQ(waiting.read_line(), R"({"id":null,"result":{"step":4}})");
}

TEST_F(ConnectionLimitsTest, RejectsRequestsBeyondInFlightLimit) {
  training_.hold();
  options_.limits.requests_in_flight = 2;
  serve();
  auto peer = client();
  ASSERT_TRUE(peer.send("pause\nresume\n{\"id\":3,\"method\":\"stop\"}\n"));
  EXPECT_THAT(peer.read_line(), AllOf(HasSubstr(R"({"id":3,"error")"), HasSubstr("in flight")));
  auto held = training_.take_held(2);
  ASSERT_THAT(held, SizeIs(2));
  for (auto& done : held) done(std::string("{}"));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  ASSERT_TRUE(peer.send("stop\n"));
  EXPECT_THAT(training_.take_held(1), SizeIs(1)) << "there is room again";
  EXPECT_THAT(training_.commands(), SizeIs(3));
}

TEST_F(ConnectionLimitsTest, DeliversEveryReplyToSlowClient) {
  options_.limits.requests_per_s = 1e6;
  options_.limits.unsent_bytes = 64 << 20;
  serve();
  auto peer = client();
  constexpr int kRequests = 2000;  // their replies exceed the kernel's socket buffer
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(peer.send("help\n"));
  for (int i = 0; i < kRequests; ++i) ASSERT_THAT(peer.read_line(), HasSubstr("methods")) << i;
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionLimitsTest, DropsClientThatNeverReadsWithoutBlockingOthers) {
  options_.limits.requests_per_s = 1e6;
  serve();
  auto deaf = client();
  auto other = client();
  const auto dropped = [](const Counters& now) { return now.connections_dropped == 1; };
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!dropped(counters()) && std::chrono::steady_clock::now() < deadline) {
    (void)deaf.send_without_waiting("help\nhelp\nhelp\nhelp\n");
    ASSERT_THAT(other.ask("status"), HasSubstr("\"state\""));
  }
  EXPECT_TRUE(dropped(counters()));
  EXPECT_THAT(other.ask("status"), HasSubstr("\"connections\":1"));
}

TEST_F(ConnectionLimitsTest, DisconnectsUserAboveRequestRateUntilTimePasses) {
  options_.limits.requests_per_s = 3;  // the connection itself counts as one
  serve();
  auto peer = client();
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.ask("status"), AllOf(HasSubstr("busy"), HasSubstr("3 requests a second")));
  EXPECT_TRUE(peer.is_ended());
  auto rejected = client();
  EXPECT_THAT(rejected.read_line(), HasSubstr("too many requests and connections"));
  EXPECT_TRUE(rejected.is_ended());
  clock_.advance(1s);
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionLimitsTest, RejectsChangesAboveRateButAnswersStatus) {
  options_.limits.changes_per_s = 2;
  serve();
  auto peer = client();
  EXPECT_THAT(peer.ask("pause"), HasSubstr("result"));
  EXPECT_THAT(peer.ask("resume"), HasSubstr("result"));
  EXPECT_THAT(peer.ask("pause"), AllOf(HasSubstr("busy"), HasSubstr("2 changes a second")));
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), SizeIs(2));
  clock_.advance(500ms);
  EXPECT_THAT(peer.ask("pause"), HasSubstr("result"));
}

TEST_F(ConnectionLimitsTest, SurvivesRandomBytesFromManyClients) {
  options_.limits.requests_per_s = 1e6;
  serve();
  std::mt19937 random(11);
  const std::string seed = "{\"id\":1,\"method\":\"status\",\"params\":{}}\nhelp\nset lr x\n";
  for (int round = 0; round < 300; ++round) {
    std::string bytes = seed;
    for (unsigned flips = random() % 6; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    auto peer = client();
    (void)peer.send(bytes);
    if (random() % 2 == 0) peer.send_no_more();
  }
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections == 0; }));
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), IsEmpty());
}

}  // namespace
}  // namespace stoker::control
