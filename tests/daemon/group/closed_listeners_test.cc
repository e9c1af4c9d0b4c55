#include "daemon/group/closed_listeners.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "daemon/group/socket_address.h"
#include "shared/base/descriptor_limit.h"
#include "tests/support/idle_connections.h"

namespace stoker::group {
namespace {

// As Gloo's, which is not accessible. One that was there before, and one on another address, stay open.
TEST(ClosedListenersTest, DropsNewConnectionsOnlyAndKeepsOthers) {
  raise_descriptor_limit();
  auto before = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  std::optional<ListeningPort> opened, elsewhere;
  const ClosedListeners listeners = ClosedListeners::open("127.0.0.1", [&] {
    opened = *listen_on("127.0.0.1", 0);
    elsewhere = *listen_on("127.0.0.2", 0);
  });
  test::IdleConnections accepted;
  accepted.open(opened->port, 1);
  ASSERT_EQ(accepted.num_established(), 1u);
  EXPECT_EQ(listeners.close(), 1u);

  test::IdleConnections later;
  later.open(opened->port, 1'000);
  EXPECT_EQ(later.num_established(), 0u);
  // What was connected transfers bytes.
  const UniqueFd server(::accept(opened->fd.get(), nullptr, nullptr));
  ASSERT_TRUE(server.valid());
  EXPECT_EQ(accepted.send_byte('x'), 1);
  char byte = 0;
  EXPECT_EQ(::recv(server.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');

  test::IdleConnections others;
  others.open(before->port, 3);
  EXPECT_EQ(others.num_established(), 3u);
}

TEST(ClosedListenersTest, LeavesFileThatHasNumberOfClosedSocketAlone) {
  std::optional<ListeningPort> opened;
  const ClosedListeners listeners =
      ClosedListeners::open("127.0.0.1", [&] { opened = *listen_on("127.0.0.1", 0); });
  opened.reset();
  opened = *listen_on("127.0.0.1", 0);  // gets the number that is free
  EXPECT_EQ(listeners.close(), 0u);
  test::IdleConnections connections;
  connections.open(opened->port, 1);
  EXPECT_EQ(connections.num_established(), 1u);
}

}  // namespace
}  // namespace stoker::group
