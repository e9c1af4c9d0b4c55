#include "daemon/group/pair_connection.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "daemon/group/socket_address.h"
#include "daemon/group/tcp_store.h"
#include "tests/support/eventually.h"

namespace stoker::group {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kBytes = int64_t{1} << 28;  // far more than sockets buffer

PairOptions options_of(int side) {
  return {.prefix = "pair/",
          .side = side,
          .address = "127.0.0.1",
          .peer = "side " + std::to_string(1 - side),
          .open_timeout = 60s,
          .timeout = 100s};
}

// Receives, and is killed once the first byte is there.
void receive_and_die(uint16_t port) {
  auto store = TcpStore::connect("127.0.0.1", port, {.prefix = "test"});
  if (!store.ok()) return;
  auto connection = PairConnection::open(**store, options_of(1));
  if (!connection.ok()) return;
  const at::Tensor bytes = at::full({kBytes}, 0, at::kByte);
  const volatile uint8_t* const first = bytes.const_data_ptr<uint8_t>();
  const std::jthread killer([first] {
    (void)test::eventually([first] { return *first != 0; });
    ::kill(::getpid(), SIGKILL);
  });
  (void)(*connection)->receive(bytes, {});
}

// Not only after the timeout, as by Gloo alone.
TEST(PairConnection, NoticesLossDuringTransfer) {
  ::signal(SIGPIPE, SIG_IGN);
  auto listening = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().to_string();
  const uint16_t port = listening->port;
  const pid_t child = ::fork();
  if (child == 0) {
    receive_and_die(port);
    ::_exit(1);
  }
  auto store = TcpStore::serve(*std::move(listening), {.prefix = "test"});
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  auto connection = PairConnection::open(**store, options_of(0));
  ASSERT_TRUE(connection.ok()) << connection.status().to_string();
  const Status sent = (*connection)->send(at::full({kBytes}, 1, at::kByte), {});
  EXPECT_EQ(sent.code(), StatusCode::kPeerLost) << sent.to_string();
  EXPECT_EQ(sent.message().find("Timed out"), std::string::npos) << sent.message();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace stoker::group
