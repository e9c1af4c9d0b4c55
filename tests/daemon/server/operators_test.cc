#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>

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

// The IDs of processes are used again. What tells a process from a later one is a pidfd from when it connected.
TEST(PeerTest, OpensNoOtherProcessAfterExit) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  auto peer = peer_of_socket(one.get());
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_TRUE(pidfd_of_peer(*peer).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  peer->maybe_process =
      std::make_shared<const UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  EXPECT_TRUE(pidfd_of_peer(*peer).ok());
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(pidfd_of_peer(*peer).status().code(), StatusCode::kUnreachable)
      << "it has exited, and is not reaped";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const Status rejected = pidfd_of_peer(*peer).status();  // pid is of this process, which lives
  EXPECT_EQ(rejected.code(), StatusCode::kUnreachable);
  EXPECT_THAT(rejected.message(), HasSubstr("the process that connected has exited"));
  peer->maybe_process = nullptr;
  EXPECT_EQ(pidfd_of_peer(*peer).status().code(), StatusCode::kUnreachable);
}

// The process of a connection that is accepted after it has exited is not found by its ID.
TEST(PeerTest, HasNoProcessThatExitedBeforeConnectionWasAccepted) {
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // An abstract name, which the kernel chooses.
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t)),
            0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t length = sizeof name;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ::_exit(::connect(fd, reinterpret_cast<const sockaddr*>(&name), length) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(accepted.valid());
  const auto peer = peer_of_socket(accepted.get());
  ASSERT_TRUE(peer.ok()) << peer.status().to_string();
  EXPECT_EQ(peer->pid, child);
  EXPECT_EQ(pidfd_of_peer(*peer).status().code(), StatusCode::kUnreachable);
}

}  // namespace
}  // namespace stoker::server
