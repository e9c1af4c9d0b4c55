// Requests of clients, the commands that training receives, and the replies.
#include <cmath>

#include <gmock/gmock.h>

#include "shared/control/client.h"
#include "shared/control/grammar.h"
#include "shared/control/protocol.h"
#include "tests/daemon/control/control_fixture.h"

namespace stoker::control {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class ControlCommandsTest : public ControlServerTest {};

control::TrainerStatus status_of(const std::string& reply) {
  const auto result = control::parse_reply(reply);
  EXPECT_TRUE(result.ok()) << reply;
  if (!result.ok()) return {};
  const auto status = control::parse_trainer_status(*result);
  EXPECT_TRUE(status.ok()) << reply;
  return status.ok() ? *status : control::TrainerStatus();
}

TEST_F(ControlCommandsTest, StatusReturnsLastPublishedState) {
  training_.publish({.state = control::TrainerState::kTraining, .step = 7, .device = "cpu"});
  serve();
  auto peer = client();
  EXPECT_EQ(status_of(peer.ask("status")).step, 7u);
  training_.publish({.state = control::TrainerState::kPaused, .step = 8, .loss = std::nan("")});
  const std::string reply = peer.ask(R"({"id":"x","method":"status"})");
  EXPECT_THAT(reply, StartsWith(R"({"id":"x","result":{"state":"paused","step":8,)"));
  EXPECT_TRUE(std::isnan(status_of(reply).loss));
}

TEST_F(ControlCommandsTest, StatusReportsStartingBeforeFirstPublish) {
  serve();
  EXPECT_EQ(status_of(client().ask("status")).state, control::TrainerState::kStarting);
}

TEST_F(ControlCommandsTest, StatusReportsServerCounters) {
  serve();
  auto peer = client();
  (void)peer.ask("pause");
  (void)peer.ask("nonsense");
  const auto counted = status_of(peer.ask("status")).control;
  EXPECT_EQ(counted.connections, 1u);
  EXPECT_EQ(counted.connections_accepted, 1u);
  EXPECT_EQ(counted.requests_total, 2u);
  EXPECT_EQ(counted.requests_failed, 1u);
  EXPECT_EQ(counted.connections_rejected, 0u);
  EXPECT_EQ(counted.connections_dropped, 0u);
}

TEST_F(ControlCommandsTest, HelloReturnsVersionBuildRoleAndMethods) {
  serve();
  EXPECT_EQ(
      client().ask(R"({"id":1,"method":"hello"})"),
      R"({"id":1,"result":{"protocol_version":2,"stoker_version":"1.2.3","role":"operate","methods":)"
      R"(["hello","help","status","pause","resume","checkpoint","stop","set","attach","profile","inspect_open","inspect_read","inspect_close"]}})");
}

TEST_F(ControlCommandsTest, HelpListsEveryMethodWithTextForm) {
  serve();
  const auto help = control::parse_reply(client().ask("help"));
  ASSERT_TRUE(help.ok()) << help.status().to_string();
  for (const auto& info : control::methods())
    EXPECT_THAT(*help, HasSubstr("\"text_form\":\"" + info.text_form + "\""));
  EXPECT_THAT(*help,
              HasSubstr(R"({"method":"checkpoint","text_form":"checkpoint","role":"operate",)"
                        R"("text":"save a checkpoint now; answers when it is durable"})"));
}

struct Sent {
  std::string line;
  Command command;
};

TEST_F(ControlCommandsTest, DeliversEachCommandToTrainingOnce) {
  const std::vector<Sent> lines = {
      {"pause", Pause{}},
      {"resume", Resume{}},
      {"checkpoint", SaveCheckpoint{}},
      {"stop", Stop{}},
      {"set lr 1e-4", SetLearningRate{1e-4}},
      {R"({"method":"pause"})", Pause{}},
      {R"({"jsonrpc":"2.0","method":"resume","params":{}})", Resume{}},
      {R"({"method":"checkpoint"})", SaveCheckpoint{}},
      {R"({"method":"stop"})", Stop{}},
      {R"({"method":"set","params":{"lr":0.25}})", SetLearningRate{0.25}},
      {"profile 20", Profile{.steps = 20}},
      {R"({"method":"profile","params":{"steps":20,"kernels":true}})",
       Profile{.steps = 20, .kernels = true}},
  };
  serve();
  auto peer = client();
  for (const Sent& sent : lines) {
    EXPECT_EQ(peer.ask(sent.line), R"({"id":null,"result":{"step":1200}})") << sent.line;
    EXPECT_EQ(training_.commands().back(), sent.command) << sent.line;
  }
  EXPECT_THAT(training_.commands(), SizeIs(lines.size()));
}

TEST_F(ControlCommandsTest, OpensInspectionInTrainingAndReadsItImmediately) {
  training_.answer_with(std::string(R"({"inspection":3,"step":1200})"));
  serve();
  auto peer = client();
  EXPECT_EQ(peer.ask("inspect_open blocks.0.* 10"),
            R"({"id":null,"result":{"inspection":3,"step":1200}})");
  EXPECT_EQ(training_.commands().back(),
            Command(OpenInspection{.glob = "blocks.0.*", .every = 10}));
  EXPECT_EQ(peer.ask("inspect_read 3 17"),
            R"({"id":null,"result":{"inspection":3,"records":[],"next":17}})");
  EXPECT_THAT(peer.ask("inspect_read 4"), HasSubstr(R"("kind":"not found")"));
  EXPECT_EQ(peer.ask(R"({"id":1,"method":"inspect_close","params":{"inspection":3}})"),
            R"({"id":1,"result":{}})");
  EXPECT_THAT(peer.ask("inspect_close 4"), HasSubstr("there is no inspection 4"));
  EXPECT_THAT(training_.commands(), SizeIs(1));  // reading does not involve the trainer
}

TEST_F(ControlCommandsTest, ServesClientLibrary) {
  serve();
  auto connected = control::Client::connect(options_.socket_path, 20s);
  ASSERT_TRUE(connected.ok()) << connected.status().to_string();
  EXPECT_EQ(*connected->call("set", R"({"lr":0.5})", 20s), R"({"step":1200})");
  training_.answer_with(Status(StatusCode::kNoSpace, "the disk is full"));
  const auto failed = connected->call("checkpoint", "", 20s);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kNoSpace);
  EXPECT_EQ(failed.status().message(), "the disk is full");
}

TEST_F(ControlCommandsTest, ReturnsTrainingErrorWithRequestId) {
  training_.answer_with(Status(StatusCode::kBusy, "the mailbox is full"));
  serve();
  EXPECT_EQ(client().ask(R"({"id":5,"method":"pause"})"),
            R"({"id":5,"error":{"code":-32000,"message":"the mailbox is full",)"
            R"("data":{"kind":"busy"}}})");
}

TEST_F(ControlCommandsTest, AnswersStatusWhileCheckpointIsPending) {
  training_.hold();
  serve();
  auto peer = client();
  ASSERT_TRUE(peer.send("{\"id\":1,\"method\":\"checkpoint\"}\n"));
  auto held = training_.take_held(1);
  ASSERT_THAT(held, SizeIs(1));
  EXPECT_THAT(peer.ask(R"({"id":2,"method":"status"})"), StartsWith(R"({"id":2,"result")"));
  held[0](std::string(R"({"step":3})"));
  EXPECT_EQ(peer.read_line(), R"({"id":1,"result":{"step":3}})");
}

TEST_F(ControlCommandsTest, RoutesOutOfOrderRepliesToTheirClients) {
  training_.hold();
  serve();
  auto first = client();
  auto second = client();
  ASSERT_TRUE(first.send("{\"id\":1,\"method\":\"pause\"}\n"));
  auto of_first = training_.take_held(1);
  ASSERT_TRUE(second.send("{\"id\":1,\"method\":\"resume\"}\n"));
  auto of_second = training_.take_held(1);
  ASSERT_THAT(of_first, SizeIs(1));
  ASSERT_THAT(of_second, SizeIs(1));
  of_second[0](std::string(R"({"step":2})"));
  of_first[0](std::string(R"({"step":1})"));
  EXPECT_THAT(first.read_line(), HasSubstr(R"({"step":1})"));
  EXPECT_THAT(second.read_line(), HasSubstr(R"({"step":2})"));
}

TEST_F(ControlCommandsTest, RejectsUnknownMethodsKeysAndValuesWithoutDisconnecting) {
  serve();
  auto peer = client();
  EXPECT_THAT(peer.ask("launch"), AllOf(HasSubstr("-32601"), HasSubstr("'launch'")));
  EXPECT_THAT(peer.ask(R"({"id":4,"method":"launch"})"),
              AllOf(StartsWith(R"({"id":4,)"), HasSubstr("-32601")));
  EXPECT_THAT(peer.ask("set momentum 0.9"), AllOf(HasSubstr("-32602"), HasSubstr("'momentum'")));
  EXPECT_THAT(peer.ask("set lr nan"), HasSubstr("-32602"));
  EXPECT_THAT(peer.ask("stop now"), HasSubstr("-32602"));
  EXPECT_THAT(peer.ask(R"({"method":"stop","force":true})"), HasSubstr("-32600"));
  EXPECT_THAT(peer.ask(R"({"method":"set","params":{"lr":1e-4,"lr":1}})"), HasSubstr("-32600"));
  EXPECT_THAT(peer.ask(""), AllOf(HasSubstr("-32600"), HasSubstr("empty")));
  EXPECT_THAT(training_.commands(), IsEmpty());
  EXPECT_EQ(status_of(peer.ask("status")).control.requests_failed, 8u);
}

TEST_F(ControlCommandsTest, ParsesFragmentedAndBatchedLines) {
  serve();
  auto peer = client();
  for (const char c : std::string("set lr 0.5\r\n")) ASSERT_TRUE(peer.send(std::string(1, c)));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  ASSERT_TRUE(peer.send("pause\n{\"id\":2,\"method\":\"resume\"}\nstat"));
  EXPECT_THAT(peer.read_line(), HasSubstr(R"("id":null,"result")"));
  EXPECT_THAT(peer.read_line(), HasSubstr(R"("id":2,"result")"));
  EXPECT_THAT(peer.ask("us"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), SizeIs(3));
}

TEST_F(ControlCommandsTest, DeliversRepliesToHalfClosedClient) {
  training_.hold();
  serve();
  auto peer = client();
  ASSERT_TRUE(peer.send("status\ncheckpoint\n"));
  peer.send_no_more();
  EXPECT_THAT(peer.read_line(), HasSubstr("\"state\""));
  auto held = training_.take_held(1);
  ASSERT_THAT(held, SizeIs(1));
  held[0](std::string(R"({"step":9})"));
  EXPECT_EQ(peer.read_line(), R"({"id":null,"result":{"step":9}})");
  EXPECT_TRUE(peer.is_ended());
}

}  // namespace
}  // namespace stoker::control
