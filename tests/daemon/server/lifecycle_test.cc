// Start and stop of the server with connected clients and pending replies.
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "tests/daemon/server/control_fixture.h"

namespace stoker::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

class ControlServerLifecycleTest : public ControlServerTest {};

TEST_F(ControlServerLifecycleTest, NotifiesClientsAndRemovesSocketOnStop) {
  start_serving();
  auto peer = client();
  ASSERT_THAT(peer.request("status"), HasSubstr("\"state\""));
  stop();
  EXPECT_THAT(peer.read_line(), HasSubstr("the daemon is shutting down"));
  EXPECT_TRUE(peer.is_closed());
  EXPECT_FALSE(fs::exists(fs::symlink_status(options_.socket_path)));
  stop();  // idempotent
}

TEST_F(ControlServerLifecycleTest, DeliversCompletedRepliesBeforeStopping) {
  training_.withhold_replies();
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("stop\ncheckpoint\n"));
  auto pending = training_.take_pending(2);
  ASSERT_THAT(pending, SizeIs(2));
  pending[0](std::string(R"({"step":8})"));
  stop();
  EXPECT_THAT(peer.read_line(), HasSubstr(R"({"step":8})"));
  EXPECT_THAT(peer.read_line(), HasSubstr("the daemon is shutting down"));
  EXPECT_TRUE(peer.is_closed());
  pending[1](std::string("{}"));  // after the server has stopped
}

TEST_F(ControlServerLifecycleTest, IgnoresReplyAfterServerIsDestroyed) {
  training_.withhold_replies();
  start_serving();
  auto peer = client();
  ASSERT_TRUE(peer.send("checkpoint\n"));
  auto pending = training_.take_pending(1);
  ASSERT_THAT(pending, SizeIs(1));
  destroy();
  EXPECT_THAT(peer.read_line(), HasSubstr("the daemon is shutting down"));
  pending[0](std::string("{}"));
}

TEST_F(ControlServerLifecycleTest, AcceptsRepliesFromOtherThreadsDuringStop) {
  training_.withhold_replies();
  start_serving();
  std::vector<TestClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send("pause\nresume\n"));
  }
  auto pending = training_.take_pending(16);
  ASSERT_THAT(pending, SizeIs(16));
  std::vector<std::thread> threads;
  for (auto& done : pending) threads.emplace_back([&done] { done(std::string(R"({"step":1})")); });
  stop();
  for (auto& thread : threads) thread.join();
  for (auto& peer : clients) {
    std::string last;
    for (std::string line = peer.read_line(); !line.empty(); line = peer.read_line()) last = line;
    EXPECT_THAT(last, HasSubstr("the daemon is shutting down"));
  }
}

TEST_F(ControlServerLifecycleTest, NamesRunAndProcessOfServerThatHasSocket) {
  start_serving();
  boost::asio::io_context io;
  ControlServer second(io, clock_, training_, options_);
  const Status started = second.start();
  EXPECT_EQ(exit_code_for(started), ExitCode::kConfiguration) << started.to_string();
  EXPECT_THAT(started.message(), HasSubstr("the stokerd of /runs/a b (pid 4711)"));
  second.stop();
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

TEST_F(ControlServerLifecycleTest, ReportsBindFailureAndLeavesNoFiles) {
  options_.socket_path = root_ / "missing/control.sock";
  options_.link_path = root_ / "control.sock";
  boost::asio::io_context io;
  ControlServer server(io, clock_, training_, options_);
  const Status started = server.start();
  EXPECT_EQ(started.code(), StatusCode::kNotFound);
  EXPECT_THAT(started.message(), HasSubstr(root_ / "missing"));
  EXPECT_TRUE(fs::is_empty(root_.path()));
}

TEST_F(ControlServerLifecycleTest, CreatesSymlinkToSocketAndRemovesItOnStop) {
  fs::create_directories(root_ / "run");
  options_.link_path = root_ / "run/control.sock";
  start_serving();
  EXPECT_EQ(fs::read_symlink(options_.link_path), options_.socket_path);
  EXPECT_THAT(TestClient(options_.link_path).request("status"), HasSubstr("\"state\""));
  stop();
  EXPECT_FALSE(fs::exists(fs::symlink_status(options_.link_path)));
}

TEST_F(ControlServerLifecycleTest, ServesClientsWhenSymlinkFails) {
  options_.link_path = root_ / "missing/control.sock";
  start_serving();
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

TEST_F(ControlServerLifecycleTest, ServesSocketPathsLongerThanKernelLimit) {
  const std::string deep = root_ / std::string(120, 'd') + "/" + std::string(120, 'e');
  fs::create_directories(deep + "/run");
  options_.socket_path = deep + "/control.sock";
  options_.link_path = deep + "/run/control.sock";
  start_serving();
  EXPECT_TRUE(fs::is_socket(options_.socket_path));
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
  EXPECT_THAT(TestClient(options_.link_path).request("status"), HasSubstr("\"state\""));
  stop();
  EXPECT_FALSE(fs::exists(fs::symlink_status(options_.socket_path)));
  EXPECT_FALSE(fs::exists(fs::symlink_status(options_.link_path)));
}

TEST_F(ControlServerLifecycleTest, ReplacesSocketOfKilledServer) {
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = control::SocketAddress::of(options_.socket_path);
    ASSERT_EQ(::bind(dead.get(), address->get(), address->length()), 0);
    ASSERT_EQ(::listen(dead.get(), 1), 0);
  }
  ASSERT_TRUE(fs::is_socket(options_.socket_path));
  start_serving();
  EXPECT_THAT(client().request("status"), HasSubstr("\"state\""));
}

}  // namespace
}  // namespace stoker::server
