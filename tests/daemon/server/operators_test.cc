#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/server/peer.h"
#include "shared/base/file.h"

namespace stoker::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ResolveOperatorsTest, AcceptsNamesAndNumericIds) {
  const auto uids = resolve_operators({"root", "12345", "0"});
  ASSERT_TRUE(uids.ok()) << uids.status().to_string();
  EXPECT_THAT(*uids, ElementsAre(0u, 12345u, 0u));
  EXPECT_TRUE(resolve_operators({})->empty());
}

TEST(ResolveOperatorsTest, ReportsEntryThatIsNotUser) {
  for (const std::string entry :
       {"no-such-user-here", "", "-1", "4294967295", "4294967296", "1 2", "root "}) {
    const auto uids = resolve_operators({"root", entry});
    ASSERT_FALSE(uids.ok()) << entry;
    EXPECT_EQ(uids.status().code(), StatusCode::kInvalidArgument) << entry;
    EXPECT_THAT(uids.status().message(), HasSubstr("control.operators: '" + entry + "'"));
  }
}

TEST(AuthorizerTest, GrantsOperateToOwnerRootAndOperatorsOnly) {
  const Authorizer authority(1000, {7});
  EXPECT_EQ(authority.role_of(1000), Role::kOperate);
  EXPECT_EQ(authority.role_of(0), Role::kOperate);
  EXPECT_EQ(authority.role_of(7), Role::kOperate);
  EXPECT_EQ(authority.role_of(8), Role::kRead);
  EXPECT_TRUE(authority.is_owner_or_root(0));
  EXPECT_FALSE(authority.is_owner_or_root(7));
}

TEST(PeerTest, ReturnsCredentialsOfConnectedProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const UniqueFd one(ends[0]);
  const UniqueFd other(ends[1]);
  const auto peer = peer_of_socket(one.get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(peer->gid, ::getegid());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_FALSE(peer_of_socket(-1).ok());
}

std::chrono::nanoseconds time_since_boot() {
  timespec now{};
  EXPECT_EQ(::clock_gettime(CLOCK_BOOTTIME, &now), 0);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

TEST(PeerTest, IsProcessAtOtherEndAndTimeOfConnection) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const auto before = time_since_boot();
  const auto peer = peer_of_socket(one.get());
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_GE(peer->seen, before);
  EXPECT_LE(peer->seen, time_since_boot());
  EXPECT_TRUE(pidfd_of_peer(one.get(), *peer).ok());
  EXPECT_TRUE(pidfd_of_process(*peer).ok());
}

// As one that has got the ID of the process that connected. Its name is to be read as a state and numbers.
TEST(PeerTest, OpensNoProcessThatWasStartedAfterConnection) {
  const auto now = time_since_boot();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) S 1 1 1 (");
    ::pause();
    ::_exit(0);
  }
  using std::chrono::seconds;
  const Status rejected = pidfd_of_process({.pid = child, .seen = now - seconds(1)}).status();
  EXPECT_EQ(rejected.code(), StatusCode::kUnreachable);
  EXPECT_THAT(rejected.message(), HasSubstr("the process that connected has exited"));
  EXPECT_TRUE(pidfd_of_process({.pid = child, .seen = now + seconds(3600)}).ok());
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(pidfd_of_process({.pid = child, .seen = now + seconds(3600)}).ok())
      << "it has exited, and is not reaped";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(pidfd_of_process({.pid = child, .seen = now + seconds(3600)}).status().code(),
            StatusCode::kUnreachable);
}

}  // namespace
}  // namespace stoker::server
