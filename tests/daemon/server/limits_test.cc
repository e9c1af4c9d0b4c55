// Limits of one connection: lines, time, memory, requests.
#include <random>

#include <gmock/gmock.h>

#include "shared/control/protocol.h"
#include "tests/daemon/server/control_fixture.h"
#include "tests/support/eventually.h"

namespace stoker::server {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Counters = control::TrainerStatus::Control;

class ConnectionLimitsTest : public ControlServerTest {
 protected:
  bool eventually_has_no_connections() {
    return eventually(
        [](const Counters& now) { return now.connections_accepted > 0 && now.connections == 0; });
  }
};

TEST_F(ConnectionLimitsTest, AcceptsLineOfMaximumLength) {
  start_serving();
  auto peer = client();
  const std::string status = "status" + std::string(control::kMaxLineBytes - 6, ' ');
  EXPECT_THAT(peer.request(status), HasSubstr("\"state\""));
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\"")) << "and the connection continues";
}

TEST_F(ConnectionLimitsTest, DisconnectsAfterLineExceedsMaximumLength) {
  start_serving();
  for (const size_t bytes : {control::kMaxLineBytes + 1, size_t{1} << 20}) {
    auto peer = client();
    (void)peer.send(std::string(bytes, ' ') + "\nstop\n");
    EXPECT_THAT(peer.read_line(), AllOf(HasSubstr("-32600"), HasSubstr("longer than 65536 bytes")));
    EXPECT_TRUE(peer.is_closed());
  }
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections_dropped == 2; }));
  EXPECT_THAT(training_.commands(), IsEmpty()) << "later lines are ignored";
}

TEST_F(ConnectionLimitsTest, RepliesOnceAndDisconnectsOnMalformedJson) {
  start_serving();
  for (const std::string& line : {std::string("{"), std::string(R"({"method":"stop"}})"),
                                  std::string(70, '{'), std::string("\x16\x03\x01\x02"),
                                  std::string("sto\0p", 5), std::string("{\"a\":\"\xff\"}")}) {
    auto peer = client();
    ASSERT_TRUE(peer.send(line + "\nstop\n"));
    EXPECT_THAT(peer.read_line(), HasSubstr("-32700"));
    EXPECT_TRUE(peer.is_closed());
  }
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionLimitsTest, IgnoresLineWithoutNewline) {
  start_serving();
  auto gone = client();
  ASSERT_TRUE(gone.send("stop"));
  gone.close();
  auto half_closed = client();
  ASSERT_TRUE(half_closed.send("{\"method\":\"stop\"}"));
  half_closed.shutdown_send();
  EXPECT_THAT(half_closed.read_line(), HasSubstr("no newline; request ignored"));
  EXPECT_TRUE(half_closed.is_closed());
  EXPECT_TRUE(eventually_has_no_connections());
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionLimitsTest, DisconnectsOnLineTimeout) {
  options_.limits.line_time = 5ms;
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("sta"));
  EXPECT_THAT(peer.read_line(), AllOf(HasSubstr("incomplete line"), HasSubstr("timed out")));
  EXPECT_TRUE(peer.is_closed());
}

TEST_F(ConnectionLimitsTest, DisconnectsIdleClient) {
  options_.limits.idle_time = 5ms;
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.read_line(), HasSubstr("no request for 0.005 s"));
  EXPECT_TRUE(peer.is_closed());
}

TEST_F(ConnectionLimitsTest, DoesNotTimeOutClientWithPendingReply) {
  options_.limits.idle_time = 5ms;
  training_.withhold_replies();
  open();
  auto waiting = client();
  ASSERT_TRUE(waiting.send("checkpoint\n"));  // arrives before the server starts to read
  run();
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  auto idle = client();
  EXPECT_THAT(idle.read_line(), HasSubstr("no request for"));  // so the idle time has passed
  pending[0](std::string(R"({"step":4})"));
  EXPECT_EQ(waiting.read_line(), R"({"id":null,"result":{"step":4,"job":1}})");
}

TEST_F(ConnectionLimitsTest, RejectsRequestsBeyondInFlightLimit) {
  training_.withhold_replies();
  options_.limits.requests_in_flight = 2;
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("pause\nresume\n{\"id\":3,\"method\":\"stop\"}\n"));
  EXPECT_THAT(peer.read_line(), AllOf(HasSubstr(R"({"id":3,"error")"), HasSubstr("in flight")));
  auto pending = training_.take_pending(2);
  ASSERT_THAT(pending, SizeIs(2));
  for (auto& done : pending) done(std::string("{}"));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  ASSERT_TRUE(peer.send("stop\n"));
  EXPECT_THAT(training_.take_pending(1), SizeIs(1)) << "a request has been completed";
  EXPECT_THAT(training_.commands(), SizeIs(3));
}

TEST_F(ConnectionLimitsTest, DeliversEveryReplyToSlowClient) {
  options_.limits.requests_per_s = 1e6;
  options_.limits.unsent_bytes = 64 << 20;
  start_serving();
  auto peer = client();
  constexpr int kRequests = 2000;  // their replies exceed the kernel's socket buffer
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(peer.send("help\n"));
  for (int i = 0; i < kRequests; ++i) ASSERT_THAT(peer.read_line(), HasSubstr("methods")) << i;
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionLimitsTest, DropsClientThatNeverReadsWithoutBlockingOthers) {
  options_.limits.requests_per_s = 1e6;
  start_serving();
  auto stalled = client();
  auto other = client();
  const auto dropped = [](const Counters& now) { return now.connections_dropped == 1; };
  test::Patience patience(60s);
  while (!dropped(counters()) && !patience.is_over()) {
    (void)stalled.send_without_waiting("help\nhelp\nhelp\nhelp\n");
    ASSERT_THAT(other.request("status"), HasSubstr("\"state\""));
  }
  EXPECT_TRUE(dropped(counters()));
  EXPECT_THAT(other.request("status"), HasSubstr("\"connections\":1"));
}

// 10,000 open together, some of which send bytes slowly, and some never read.
TEST_F(ConnectionLimitsTest, SurvivesTenThousandConnections) {
  constexpr size_t kConnections = 10'000;
  options_.limits.rejection_pause = 0ms;
  options_.limits.requests_per_s = 1e6;
  options_.limits.line_time = 1h;
  start_serving();
  auto operator_client = client();
  std::vector<TestClient> admitted;
  for (size_t i = 1; i < options_.limits.connections; ++i) admitted.push_back(client());
  for (TestClient& peer : admitted) ASSERT_THAT(peer.request("subscribe"), HasSubstr("result"));
  for (size_t i = admitted.size() + 1; i < kConnections; ++i) {
    auto peer = client();
    if (i % 100 == 0) {
      (void)peer.send("x");
      for (TestClient& slow : admitted) ASSERT_TRUE(slow.send("s"));
      ASSERT_THAT(operator_client.request("status"), HasSubstr("\"state\""));
    }
    ASSERT_THAT(peer.read_line(), HasSubstr("32 clients are connected, the maximum"));
  }
  const auto counted = counters();
  EXPECT_EQ(counted.connections, options_.limits.connections);
  EXPECT_EQ(counted.connections_accepted + counted.connections_rejected, kConnections);
}

TEST_F(ConnectionLimitsTest, DisconnectsUserAboveRequestRateUntilTimePasses) {
  options_.limits.requests_per_s = 3;  // the connection itself counts as one
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.request("status"), AllOf(HasSubstr("busy"), HasSubstr("3 requests per second")));
  EXPECT_TRUE(peer.is_closed());
  auto rejected = client();
  EXPECT_THAT(rejected.read_line(), HasSubstr("too many requests and connections"));
  EXPECT_TRUE(rejected.is_closed());
  clock_.advance(1s);
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionLimitsTest, RejectsChangesAboveRateButAnswersStatus) {
  options_.limits.changes_per_s = 2;
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("pause"), HasSubstr("result"));
  EXPECT_THAT(peer.request("resume"), HasSubstr("result"));
  EXPECT_THAT(peer.request("pause"), AllOf(HasSubstr("busy"), HasSubstr("2 changes per second")));
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), SizeIs(2));
  clock_.advance(500ms);
  EXPECT_THAT(peer.request("pause"), HasSubstr("result"));
}

TEST_F(ConnectionLimitsTest, SurvivesRandomBytesFromManyClients) {
  options_.limits.requests_per_s = 1e6;
  start_serving();
  std::mt19937 random(11);
  const std::string seed = "{\"id\":1,\"method\":\"status\",\"params\":{}}\nhelp\nset a x\n";
  for (int round = 0; round < 300; ++round) {
    std::string bytes = seed;
    for (unsigned flips = random() % 6; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    auto peer = client();
    (void)peer.send(bytes);
    if (random() % 2 == 0) peer.shutdown_send();
  }
  EXPECT_TRUE(eventually([](const Counters& now) { return now.connections == 0; }));
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), IsEmpty());
}

}  // namespace
}  // namespace stoker::server
