#include <sys/socket.h>
#include <unistd.h>

#include <array>

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

}  // namespace
}  // namespace stoker::server
