// Which users can connect, and with which role.
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "shared/base/log.h"
#include "shared/control/grammar.h"
#include "tests/daemon/server/control_fixture.h"

namespace stoker::server {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Counters = control::TrainerStatus::Control;

constexpr uid_t kOtherUid = 4242;

class ConnectionAdmissionTest : public ControlServerTest {
 protected:
  // From now on every connection comes from this user.
  void connect_as(uid_t uid) {
    uid_ = uid;
    options_.peer_of = [this](int) { return Peer{.uid = uid_, .gid = 1, .pid = 99}; };
  }
  std::vector<TestClient> connect_clients(size_t count) {
    std::vector<TestClient> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(client());
      EXPECT_THAT(clients.back().request("status"), HasSubstr("\"state\"")) << "client " << i;
    }
    return clients;
  }
  void expect_rejected(const std::string& why) {
    auto peer = client();
    EXPECT_THAT(peer.read_line(), HasSubstr(why));
    EXPECT_TRUE(peer.is_closed());
  }

  std::atomic<uid_t> uid_ = 0;  // written by the test thread, read by the server thread
};

TEST_F(ConnectionAdmissionTest, AcceptsOwnerUpToConnectionLimitThenRejects) {
  start_serving();
  auto clients = connect_clients(options_.limits.connections);
  expect_rejected("32 clients are connected, the maximum");
  EXPECT_EQ(counters().connections_rejected, 1u);
  EXPECT_EQ(counters().connections, 32u);
  for (auto& peer : clients)
    EXPECT_THAT(peer.request("status"), HasSubstr("\"connections_rejected\":1"));
}

TEST_F(ConnectionAdmissionTest, AcceptsClientAfterAnotherDisconnects) {
  options_.limits.connections = 5;
  start_serving();
  auto clients = connect_clients(5);
  expect_rejected("5 clients");
  clients.pop_back();
  ASSERT_TRUE(eventually([](const Counters& now) { return now.connections == 4; }));
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionAdmissionTest, LimitsConnectionsPerUnprivilegedUser) {
  connect_as(kOtherUid);
  options_.limits.connections_per_uid = 2;
  start_serving();
  const auto clients = connect_clients(2);
  expect_rejected("uid 4242 has 2 connections");
  uid_ = kOtherUid + 1;
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionAdmissionTest, ReservesConnectionsForOwnerAndRoot) {
  connect_as(kOtherUid);
  options_.limits.connections = 5;
  options_.limits.reserved_connections = 4;
  start_serving();
  const auto clients = connect_clients(1);
  expect_rejected("1 clients are connected");
  uid_ = 0;
  const auto of_root = connect_clients(4);
  expect_rejected("5 clients are connected");
}

TEST_F(ConnectionAdmissionTest, KeepsConnectionsForOperatorsFromReadOnlyUsers) {
  constexpr uid_t kOperator = 7;
  options_.operators = {kOperator};
  connect_as(kOtherUid);
  start_serving();
  std::vector<std::vector<TestClient>> readers;
  for (int user = 0; user < 2; ++user, ++uid_) readers.push_back(connect_clients(8));
  expect_rejected("16 clients with read-only access are connected");
  uid_ = kOperator;
  auto of_operator = connect_clients(8);
  EXPECT_THAT(of_operator.front().request("pause"), HasSubstr("result"));
  uid_ = 0;
  const auto of_root = connect_clients(8);
}

TEST_F(ConnectionAdmissionTest, RejectsClientWithUnknownCredentials) {
  options_.peer_of = [](int) -> Result<Peer> {
    return Status(StatusCode::kPermission, "SO_PEERCRED: not permitted");
  };
  start_serving();
  expect_rejected("not permitted");
  EXPECT_EQ(counters().connections_rejected, 1u);
  EXPECT_EQ(counters().connections_accepted, 0u);
}

TEST_F(ConnectionAdmissionTest, PermitsOnlyReadingMethodsToReadOnlyUser) {
  connect_as(kOtherUid);
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.request("hello"), HasSubstr(R"("role":"read")"));
  const std::set<std::string_view> readable{"hello", "help",      "status",      "threads",
                                            "get",   "subscribe", "inspect_read"};
  const std::map<std::string_view, std::string> arguments{
      {"set", " a 0.5"},      {"unset", " a"},         {"evaluate", " 1200"},
      {"profile", " 20"},     {"show_batch", " 1200"}, {"inspect_open", " *"},
      {"inspect_read", " 3"}, {"inspect_close", " 3"}};
  for (const auto& info : control::methods()) {
    const auto found = arguments.find(info.name);
    const std::string line =
        std::string(info.name) + (found == arguments.end() ? "" : found->second);
    const bool is_subscription = info.name == "subscribe";  // on a separate connection
    const std::string reply = is_subscription ? client().request(line) : peer.request(line);
    if (readable.contains(info.name)) {
      EXPECT_THAT(reply, HasSubstr("\"result\":")) << line;
    } else {
      EXPECT_THAT(reply, AllOf(HasSubstr(R"("kind":"not permitted")"), HasSubstr(line))) << line;
    }
  }
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionAdmissionTest, ReadOnlyUserReadsInspectionWithoutEffectOnIt) {
  connect_as(kOtherUid);
  start_serving();
  auto reader = client();
  EXPECT_THAT(reader.request("inspect_read 3 17"), HasSubstr(R"("next":17)"));
  EXPECT_EQ(training_.reads(), 0);
  uid_ = ::geteuid();
  EXPECT_THAT(client().request("inspect_read 3 17"), HasSubstr(R"("next":17)"));
  EXPECT_EQ(training_.reads(), 1);
}

TEST_F(ConnectionAdmissionTest, LimitsLogLinesAboutDeniedCommandsOfOneUser) {
  const std::string file = root_ / "log";
  ASSERT_TRUE(init_log({.file = file, .console = false}).ok());
  options_.limits.denials_logged_burst = 3;
  connect_as(kOtherUid);
  start_serving();
  auto reader = client();
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(reader.request("stop"), HasSubstr(R"("kind":"not permitted")"));
  uid_ = kOtherUid + 1;
  EXPECT_THAT(client().request("stop"), HasSubstr("not permitted"));
  uid_ = ::geteuid();
  auto owner = client();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(owner.request("pause"), HasSubstr("result"));
  clock_.advance(std::chrono::minutes(2));
  EXPECT_THAT(reader.request("stop"), HasSubstr("not permitted"));
  flush_log();
  const std::string text = *read_file(file, 1 << 20);
  ASSERT_TRUE(init_log({.console = true}).ok());
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("command=stop uid=4242 "), 4u) << text;
  EXPECT_EQ(count("num_suppressed=17"), 1u) << text;
  EXPECT_EQ(count("command=stop uid=4243 "), 1u) << "other users are not affected";
  EXPECT_EQ(count("command=pause"), 10u) << "executed commands are always logged";
}

TEST_F(ConnectionAdmissionTest, AcceptsControlCommandsFromListedOperator) {
  connect_as(kOtherUid);
  options_.operators = {kOtherUid};
  start_serving();
  auto peer = client();
  EXPECT_THAT(peer.request("hello"), HasSubstr(R"("role":"operate")"));
  EXPECT_THAT(peer.request("pause"), HasSubstr("result"));
  EXPECT_THAT(training_.commands(), SizeIs(1));
}

TEST_F(ConnectionAdmissionTest, FreesConnectionWhenClientDisconnectsBeforeReply) {
  options_.limits.connections = 5;
  training_.withhold_replies();
  start_serving();
  std::vector<TestClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send("pause\n"));
  }
  auto pending = training_.take_pending(5);
  ASSERT_THAT(pending, SizeIs(5));
  clients.clear();
  ASSERT_TRUE(eventually([](const Counters& now) { return now.connections == 0; }));
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
  for (auto& done : pending) done(std::string("{}"));  // the clients are gone
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

// Uses up all remaining file descriptors of this process.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &previous_limit_);
    const rlimit few{.rlim_cur = 128, .rlim_max = previous_limit_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (UniqueFd fd = open_descriptor(); fd.valid(); fd = open_descriptor())
      descriptors_.push_back(std::move(fd));
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &previous_limit_); }

 private:
  static UniqueFd open_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  rlimit previous_limit_{};
  std::vector<UniqueFd> descriptors_;
};

TEST_F(ConnectionAdmissionTest, RejectsClientsWithoutDescriptorsThenServesThemLater) {
#ifdef __SANITIZE_ADDRESS__
  // UBSan would report every object with virtual functions as invalid.
  GTEST_SKIP() << "UBSan, enabled with ASan, checks memory through its own pipe";
#endif
  options_.limits.accept_pause = 1ms;
  start_serving();
  TestClient peer;
  const auto address = control::SocketAddress::of(options_.socket_path);
  ASSERT_TRUE(address.ok());
  {
    const NoDescriptors none;
    ASSERT_TRUE(peer.connect_to(*address));
    EXPECT_THAT(peer.read_line(), HasSubstr("no file descriptors left"));
    EXPECT_TRUE(peer.is_closed());
  }
  EXPECT_THAT(client().request("status"), HasSubstr("\"connections_rejected\":1"));
}

}  // namespace
}  // namespace stoker::server
