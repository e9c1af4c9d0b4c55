// Requests of clients, the commands that training receives, and the replies.
#include <atomic>
#include <cmath>

#include <gmock/gmock.h>

#include "shared/control/client.h"
#include "shared/control/grammar.h"
#include "shared/control/protocol.h"
#include "shared/control/thread_table.h"
#include "tests/daemon/server/control_fixture.h"

namespace stoker::server {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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
  start_serving();
  auto peer = client();
  EXPECT_EQ(status_of(peer.request("status")).step, 7u);
  training_.publish({.state = control::TrainerState::kPaused, .step = 8, .loss = std::nan("")});
  const std::string reply = peer.request(R"({"id":"x","method":"status"})");
  EXPECT_THAT(reply, StartsWith(R"({"id":"x","result":{"state":"paused","step":8,)"));
  EXPECT_TRUE(std::isnan(status_of(reply).loss));
}

TEST_F(ControlCommandsTest, StatusReportsStartingBeforeFirstPublish) {
  start_serving();
  EXPECT_EQ(status_of(client().request("status")).state, control::TrainerState::kStarting);
}

TEST_F(ControlCommandsTest, StatusReportsServerCounters) {
  start_serving();
  auto peer = client();
  (void)peer.request("pause");
  (void)peer.request("nonsense");
  const auto counted = status_of(peer.request("status")).control;
  EXPECT_EQ(counted.connections, 1u);
  EXPECT_EQ(counted.connections_accepted, 1u);
  EXPECT_EQ(counted.requests_total, 2u);
  EXPECT_EQ(counted.requests_failed, 1u);
  training_.answer_with(Status(StatusCode::kBusy, "the mailbox is full"));
  EXPECT_THAT(peer.request("pause"), HasSubstr("the mailbox is full"));
  EXPECT_EQ(status_of(peer.request("status")).control.requests_failed, 2u);
  EXPECT_EQ(counted.connections_rejected, 0u);
  EXPECT_EQ(counted.connections_dropped, 0u);
}

TEST_F(ControlCommandsTest, HelloReturnsVersionBuildRoleAndMethods) {
  start_serving();
  EXPECT_EQ(
      client().request(R"({"id":1,"method":"hello"})"),
      R"({"id":1,"result":{"protocol_version":2,"stoker_version":"1.2.3","role":"operate","methods":)"
      R"(["hello","help","status","threads","pause","resume","checkpoint","stop","get","set","unset","subscribe","logs","evaluate","show_batch","reload","attach","profile","inspect_open","inspect_read","inspect_close"],)"
      R"("run_dir":"/runs/a b","run_dir_id":"2049:17","pid":4711}})");
}

TEST_F(ControlCommandsTest, HelloAndStatusIdentifyRun) {
  start_serving();
  auto peer = client();
  const auto hello = control::parse_reply(peer.request("hello"));
  ASSERT_TRUE(hello.ok()) << hello.status().to_string();
  const auto parsed = control::parse_hello_reply(*hello);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->run.run_dir, "/runs/a b");
  EXPECT_EQ(parsed->run.run_dir_id, "2049:17");
  EXPECT_EQ(parsed->run.pid, 4711);
  const auto status = status_of(peer.request("status"));
  EXPECT_EQ(status.run_dir, "/runs/a b");
  EXPECT_EQ(status.run_dir_id, "2049:17");
  EXPECT_EQ(status.pid, 4711);
}

TEST_F(ControlCommandsTest, ThreadsListsThreadsOfTraining) {
  ThreadList list{.threads = {}, .library_threads = 2};
  list.threads.push_back({.name = "trainer",
                          .tid = 4712,
                          .operation = "wait for batch",
                          .state = ThreadState::kWaiting});
  training_.set_threads(std::move(list));
  start_serving();
  const auto reply = control::parse_reply(client().request("threads"));
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  const auto table = control::parse_thread_table(*reply);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_THAT(table->rows, SizeIs(1));
  EXPECT_EQ(table->rows[0].name, "trainer");
  EXPECT_EQ(table->rows[0].operation, "wait for batch");
  EXPECT_EQ(table->rows[0].state, ThreadState::kWaiting);
  EXPECT_EQ(table->library_threads, 2u);
}

TEST_F(ControlCommandsTest, ListsThreadsAtMostTenTimesPerSecond) {
  start_serving();
  auto peer = client();
  for (int request = 0; request < 20; ++request) peer.request("threads");
  EXPECT_EQ(training_.thread_lists(), 1);
  clock_.advance(std::chrono::milliseconds(100));
  client().request("threads");
  EXPECT_EQ(training_.thread_lists(), 2);
}

TEST_F(ControlCommandsTest, HelpListsEveryMethodWithTextForm) {
  start_serving();
  const auto help = control::parse_reply(client().request("help"));
  ASSERT_TRUE(help.ok()) << help.status().to_string();
  for (const auto& info : control::methods())
    EXPECT_THAT(*help, HasSubstr("\"text_form\":\"" + info.text_form + "\""));
  EXPECT_THAT(*help,
              HasSubstr(R"({"method":"checkpoint","text_form":"checkpoint","role":"operate",)"
                        R"("text":"save a checkpoint now; answers when it is durable"})"));
}

struct Sent {
  std::string line;
  control::Command command;
};

TEST_F(ControlCommandsTest, DeliversEachCommandToTrainingOnce) {
  const std::vector<Sent> lines = {
      {"pause", control::Pause{}},
      {"resume", control::Resume{}},
      {"checkpoint", control::SaveCheckpoint{}},
      {"stop", control::Stop{}},
      {"set optimizer.lr 1e-4", control::SetSetting{"optimizer.lr", "1e-4"}},
      {"unset optimizer.lr", control::UnsetSetting{"optimizer.lr"}},
      {R"({"method":"pause"})", control::Pause{}},
      {R"({"jsonrpc":"2.0","method":"resume","params":{}})", control::Resume{}},
      {R"({"method":"checkpoint"})", control::SaveCheckpoint{}},
      {R"({"method":"stop"})", control::Stop{}},
      {R"({"method":"set","params":{"key":"log.level","value":"debug"}})",
       control::SetSetting{"log.level", "debug"}},
      {"profile 20", control::Profile{.steps = 20}},
      {R"({"method":"profile","params":{"steps":20,"kernels":true}})",
       control::Profile{.steps = 20, .kernels = true}},
  };
  start_serving();
  auto peer = client();
  for (const Sent& sent : lines) {
    EXPECT_THAT(peer.request(sent.line), StartsWith(R"({"id":null,"result":{"step":1200)"))
        << sent.line;
    EXPECT_EQ(training_.commands().back(), sent.command) << sent.line;
  }
  EXPECT_THAT(training_.commands(), SizeIs(lines.size()));
}

TEST_F(ControlCommandsTest, OpensInspectionInTrainingAndReadsItImmediately) {
  training_.answer_with(std::string(R"({"inspection":3,"step":1200})"));
  start_serving();
  auto peer = client();
  EXPECT_EQ(peer.request("inspect_open blocks.0.* 10"),
            R"({"id":null,"result":{"inspection":3,"step":1200}})");
  EXPECT_EQ(training_.commands().back(),
            control::Command(control::OpenInspection{.glob = "blocks.0.*", .every = 10}));
  EXPECT_EQ(peer.request("inspect_read 3 17"),
            R"({"id":null,"result":{"inspection":3,"records":[],"next":17}})");
  EXPECT_THAT(peer.request("inspect_read 4"), HasSubstr(R"("kind":"not found")"));
  EXPECT_EQ(peer.request(R"({"id":1,"method":"inspect_close","params":{"inspection":3}})"),
            R"({"id":1,"result":{}})");
  EXPECT_THAT(peer.request("inspect_close 4"), HasSubstr("there is no inspection 4"));
  EXPECT_THAT(training_.commands(), SizeIs(1));  // reading does not involve the trainer
}

TEST_F(ControlCommandsTest, ServesClientLibrary) {
  start_serving();
  auto connected = control::Client::connect(options_.socket_path, 60s);
  ASSERT_TRUE(connected.ok()) << connected.status().to_string();
  EXPECT_EQ(*connected->call("set", R"({"key":"optimizer.lr","value":0.5})", 60s),
            R"({"step":1200})");
  training_.answer_with(Status(StatusCode::kNoSpace, "the disk is full"));
  const auto failed = connected->call("checkpoint", "", 60s);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kNoSpace);
  EXPECT_EQ(failed.status().message(), "the disk is full");
}

TEST_F(ControlCommandsTest, ReturnsTrainingErrorWithRequestId) {
  training_.answer_with(Status(StatusCode::kBusy, "the mailbox is full"));
  start_serving();
  EXPECT_EQ(client().request(R"({"id":5,"method":"pause"})"),
            R"({"id":5,"error":{"code":-32000,"message":"the mailbox is full",)"
            R"("data":{"kind":"busy"}}})");
}

TEST_F(ControlCommandsTest, AnswersStatusWhileCheckpointIsPending) {
  training_.withhold_replies();
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("{\"id\":1,\"method\":\"checkpoint\"}\n"));
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  EXPECT_THAT(peer.request(R"({"id":2,"method":"status"})"), StartsWith(R"({"id":2,"result")"));
  pending[0](std::string(R"({"step":3})"));
  EXPECT_EQ(peer.read_line(), R"({"id":1,"result":{"step":3,"job":1}})");
}

TEST_F(ControlCommandsTest, RoutesOutOfOrderRepliesToTheirClients) {
  training_.withhold_replies();
  start_serving();
  auto first = client();
  auto second = client();
  ASSERT_TRUE(first.send("{\"id\":1,\"method\":\"pause\"}\n"));
  auto of_first = training_.take_pending(1);
  ASSERT_TRUE(second.send("{\"id\":1,\"method\":\"resume\"}\n"));
  auto of_second = training_.take_pending(1);
  ASSERT_THAT(of_first, SizeIs(1));
  ASSERT_THAT(of_second, SizeIs(1));
  of_second[0](std::string(R"({"step":2})"));
  of_first[0](std::string(R"({"step":1})"));
  EXPECT_THAT(first.read_line(), HasSubstr(R"({"step":1})"));
  EXPECT_THAT(second.read_line(), HasSubstr(R"({"step":2})"));
}

TEST_F(ControlCommandsTest, RejectsUnknownMethodsKeysAndValuesWithoutDisconnecting) {
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("launch"), AllOf(HasSubstr("-32601"), HasSubstr("'launch'")));
  EXPECT_THAT(peer.request(R"({"id":4,"method":"launch"})"),
              AllOf(StartsWith(R"({"id":4,)"), HasSubstr("-32601")));
  EXPECT_THAT(peer.request("set log.level"), AllOf(HasSubstr("-32602"), HasSubstr("a key and")));
  EXPECT_THAT(peer.request("unset"), HasSubstr("-32602"));
  EXPECT_THAT(peer.request("stop now"), HasSubstr("-32602"));
  EXPECT_THAT(peer.request(R"({"method":"stop","force":true})"), HasSubstr("-32600"));
  EXPECT_THAT(peer.request(R"({"method":"unset","params":{"key":"a","key":"b"}})"),
              HasSubstr("-32600"));
  EXPECT_THAT(peer.request(""), AllOf(HasSubstr("-32600"), HasSubstr("empty")));
  EXPECT_THAT(training_.commands(), IsEmpty());
  EXPECT_EQ(status_of(peer.request("status")).control.requests_failed, 8u);
}

TEST_F(ControlCommandsTest, ShowsSecretSettingsToOwnerAndOperatorsOnly) {
  options_.operators = {4242};
  std::atomic<uid_t> uid = 0;
  options_.peer_of = [&uid](int) { return Result<Peer>(Peer{.uid = uid}); };
  start_serving();
  for (const uid_t user : {::geteuid(), uid_t{4242}}) {
    uid = user;
    EXPECT_THAT(client().request("get a.secret"), HasSubstr(R"("value":"secret")")) << user;
  }
  uid = 4243;
  EXPECT_THAT(client().request("get a.secret"), Not(HasSubstr("\"secret\"")));
}

TEST_F(ControlCommandsTest, ShowsSettingsToReadersWithoutAskingTraining) {
  options_.peer_of = [](int) { return Result<Peer>(Peer{.uid = 4242}); };
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("get"),
              HasSubstr(R"("key":"optimizer.lr","value":0.1,"origin":"file")"));
  EXPECT_THAT(peer.request("get train.max_steps"), HasSubstr(R"("key":"train.max_steps")"));
  EXPECT_THAT(peer.request("get unknown"), AllOf(HasSubstr("-32000"), HasSubstr("unknown setting"),
                                                 HasSubstr("invalid argument")));
  EXPECT_THAT(peer.request("set optimizer.lr 1"), HasSubstr("not permitted"));
  EXPECT_THAT(peer.request("unset optimizer.lr"), HasSubstr("not permitted"));
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ControlCommandsTest, ParsesFragmentedAndBatchedLines) {
  start_serving();
  auto peer = client();
  for (const char c : std::string("set a 0.5\r\n")) ASSERT_TRUE(peer.send(std::string(1, c)));
  EXPECT_THAT(peer.read_line(), HasSubstr("result"));
  ASSERT_TRUE(peer.send("pause\n{\"id\":2,\"method\":\"resume\"}\nstat"));
  EXPECT_THAT(peer.read_line(), HasSubstr(R"("id":null,"result")"));
  EXPECT_THAT(peer.read_line(), HasSubstr(R"("id":2,"result")"));
  EXPECT_THAT(peer.request("us"), HasSubstr("\"state\""));
  EXPECT_THAT(training_.commands(), SizeIs(3));
}

TEST_F(ControlCommandsTest, DeliversRepliesToHalfClosedClient) {
  training_.withhold_replies();
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("status\ncheckpoint\n"));
  peer.shutdown_send();
  EXPECT_THAT(peer.read_line(), HasSubstr("\"state\""));
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  pending[0](std::string(R"({"step":9})"));
  EXPECT_EQ(peer.read_line(), R"({"id":null,"result":{"step":9,"job":1}})");
  EXPECT_TRUE(peer.is_closed());
}

}  // namespace
}  // namespace stoker::server
