#include "daemon/group/socket_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/reserved_port.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr const char* kLoopbackHost = "127.0.0.1";

Deadline in(milliseconds timeout) { return std::chrono::steady_clock::now() + timeout; }

TEST(SocketAddressTest, ListensOnFreePortOfOneAddressOnly) {
  const auto listening = listen_on(kLoopbackHost, 0);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  EXPECT_EQ(listening->address, kLoopbackHost);
  EXPECT_NE(listening->port, 0);
  const auto found =
      wait_for_listener(kLoopbackHost, listening->port, in(milliseconds(60'000)), {});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, kLoopbackHost);
  // All of 127/8 is this host.
  EXPECT_FALSE(wait_for_listener("127.0.0.2", listening->port, in(milliseconds(1)), {}).ok());
}

TEST(SocketAddressTest, ReportsPortInUse) {
  const auto first = listen_on(kLoopbackHost, 0);
  ASSERT_TRUE(first.ok());
  const auto second = listen_on(kLoopbackHost, first->port);
  EXPECT_EQ(second.status().code(), StatusCode::kBusy);
  EXPECT_THAT(second.status().message(), HasSubstr("is in use by another process"));
}

TEST(SocketAddressTest, ReportsAddressOfAnotherHost) {
  const auto listening = listen_on("192.0.2.1", 0);  // reserved for documentation
  if (listening.ok()) GTEST_SKIP() << "net.ipv4.ip_nonlocal_bind is set";
  EXPECT_EQ(listening.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(listening.status().message(), HasSubstr("192.0.2.1 is not an address of this host"));
}

TEST(SocketAddressTest, ReportsLastErrorAtDeadline) {
  const test::ReservedPort port;
  const auto found = wait_for_listener(kLoopbackHost, port.number(), in(milliseconds(500)), {});
  EXPECT_EQ(found.status().code(), StatusCode::kTimedOut);
  EXPECT_EQ(found.status().message(),
            join_host_and_port(kLoopbackHost, port.number()) + ": Connection refused");
}

TEST(SocketAddressTest, StopsWaitingOnRequest) {
  const test::ReservedPort port;
  std::stop_source stop;
  stop.request_stop();
  const auto found =
      wait_for_listener(kLoopbackHost, port.number(), in(milliseconds(60'000)), stop.get_token());
  EXPECT_EQ(found.status().code(), StatusCode::kCancelled);
}

TEST(SocketAddressTest, ChoosesAddressOfRouteOrInterface) {
  EXPECT_EQ(*own_address("auto", kLoopbackHost), kLoopbackHost);
  EXPECT_EQ(*own_address("lo", "192.0.2.1"), kLoopbackHost);
  EXPECT_EQ(*own_address(kLoopbackHost, "192.0.2.1"), kLoopbackHost);
  const auto unknown = own_address("ib9", kLoopbackHost);
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("network interface 'ib9' does not exist on"));
  EXPECT_THAT(unknown.status().message(), ::testing::ContainsRegex("it has (.*, )?lo"));
}

TEST(SocketAddressTest, RecognizesLoopback) {
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
}

TEST(SocketAddressTest, WritesIpv6AddressInBrackets) {
  EXPECT_EQ(join_host_and_port("10.0.0.5", 29500), "10.0.0.5:29500");
  EXPECT_EQ(join_host_and_port("::1", 29500), "[::1]:29500");
}

}  // namespace
}  // namespace stoker::group
