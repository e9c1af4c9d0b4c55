// Which users can connect, and with which role.
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>

#include <gmock/gmock.h>

#include "tests/daemon/control/control_fixture.h"

namespace stoker::control {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Counters = control::TrainerStatus::Control;

constexpr uid_t kStranger = 4242;

class ConnectionAdmissionTest : public ControlServerTest {
 protected:
  // From now on every connection comes from this user.
  void become(uid_t uid) {
    uid_ = uid;
    options_.peer_of = [this](int) { return Peer{.uid = uid_, .gid = 1, .pid = 99}; };
  }
  std::vector<TestClient> connect_and_ask(size_t count) {
    std::vector<TestClient> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(client());
      EXPECT_THAT(clients.back().ask("status"), HasSubstr("\"state\"")) << "client " << i;
    }
    return clients;
  }
  void expect_rejected(const std::string& why) {
    auto peer = client();
    EXPECT_THAT(peer.read_line(), HasSubstr(why));
    EXPECT_TRUE(peer.is_ended());
  }

  std::atomic<uid_t> uid_ = 0;  // written by the test thread, read by the server thread
};

TEST_F(ConnectionAdmissionTest, AcceptsOwnerUpToConnectionLimitThenRejects) {
  serve();
  auto clients = connect_and_ask(options_.limits.connections);
  expect_rejected("32 clients are connected, which is the limit");
  EXPECT_EQ(counters().connections_rejected, 1u);
  EXPECT_EQ(counters().connections, 32u);
  for (auto& peer : clients)
    EXPECT_THAT(peer.ask("status"), HasSubstr("\"connections_rejected\":1"));
}

TEST_F(ConnectionAdmissionTest, AcceptsClientAfterAnotherDisconnects) {
  options_.limits.connections = 5;
  serve();
  auto clients = connect_and_ask(5);
  expect_rejected("5 clients");
  clients.pop_back();
  ASSERT_TRUE(eventually([](const Counters& now) { return now.connections == 4; }));
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionAdmissionTest, LimitsConnectionsPerUnprivilegedUser) {
  become(kStranger);
  options_.limits.connections_per_uid = 2;
  serve();
  const auto clients = connect_and_ask(2);
  expect_rejected("uid 4242 has 2 connections");
  uid_ = kStranger + 1;
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
}

TEST_F(ConnectionAdmissionTest, ReservesConnectionsForOwnerAndRoot) {
  become(kStranger);
  options_.limits.connections = 5;
  options_.limits.reserved_connections = 4;
  serve();
  const auto clients = connect_and_ask(1);
  expect_rejected("1 clients are connected");
  uid_ = 0;
  const auto of_root = connect_and_ask(4);
  expect_rejected("5 clients are connected");
}

TEST_F(ConnectionAdmissionTest, RejectsClientWithUnknownCredentials) {
  options_.peer_of = [](int) -> Result<Peer> {
    return Status(StatusCode::kPermission, "ask who connected: not permitted");
  };
  serve();
  expect_rejected("not permitted");
  EXPECT_EQ(counters().connections_rejected, 1u);
  EXPECT_EQ(counters().connections_accepted, 0u);
}

TEST_F(ConnectionAdmissionTest, RejectsControlCommandsFromReadOnlyUser) {
  become(kStranger);
  serve();
  auto peer = client();
  EXPECT_THAT(peer.ask("status"), HasSubstr("\"state\""));
  EXPECT_THAT(peer.ask("hello"), HasSubstr(R"("role":"read")"));
  for (const std::string line : {"pause", "resume", "checkpoint", "stop", "set lr 0.5"}) {
    EXPECT_THAT(peer.ask(line), AllOf(HasSubstr(R"("kind":"not permitted")"), HasSubstr(line)))
        << line;
  }
  EXPECT_THAT(training_.commands(), IsEmpty());
}

TEST_F(ConnectionAdmissionTest, AcceptsControlCommandsFromListedOperator) {
  become(kStranger);
  options_.operators = {kStranger};
  serve();
  auto peer = client();
  EXPECT_THAT(peer.ask("hello"), HasSubstr(R"("role":"operate")"));
  EXPECT_THAT(peer.ask("pause"), HasSubstr("result"));
  EXPECT_THAT(training_.commands(), SizeIs(1));
}

TEST_F(ConnectionAdmissionTest, FreesConnectionWhenClientDisconnectsBeforeReply) {
  options_.limits.connections = 5;
  training_.hold();
  serve();
  std::vector<TestClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send("pause\n"));
  }
  auto held = training_.take_held(5);
  ASSERT_THAT(held, SizeIs(5));
  clients.clear();
  ASSERT_TRUE(eventually([](const Counters& now) { return now.connections == 0; }));
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
  for (auto& done : held) done(std::string("{}"));  // the clients are gone
  EXPECT_THAT(client().ask("status"), HasSubstr("\"state\""));
}

// Uses up all remaining file descriptors of this process.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{.rlim_cur = 128, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (UniqueFd fd = another(); fd.valid(); fd = another()) used_.push_back(std::move(fd));
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  static UniqueFd another() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  rlimit before_{};
  std::vector<UniqueFd> used_;
};

TEST_F(ConnectionAdmissionTest, RejectsClientsWithoutDescriptorsThenServesThemLater) {
#ifdef __SANITIZE_ADDRESS__
  // UBSan would report every object with virtual functions as invalid.
  GTEST_SKIP() << "UBSan, built in together with ASan, looks at memory through a pipe of its own";
#endif
  options_.limits.accept_pause = 1ms;
  serve();
  TestClient peer;
  const auto address = control::SocketAddress::of(options_.socket_path);
  ASSERT_TRUE(address.ok());
  {
    const NoDescriptors none;
    ASSERT_TRUE(peer.connect_to(*address));
    EXPECT_THAT(peer.read_line(), HasSubstr("no file descriptors left"));
    EXPECT_TRUE(peer.is_ended());
  }
  EXPECT_THAT(client().ask("status"), HasSubstr("\"connections_rejected\":1"));
}

}  // namespace
}  // namespace stoker::control
