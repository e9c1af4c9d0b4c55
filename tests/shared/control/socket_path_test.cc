#include "shared/control/socket_path.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::control {
namespace {

TEST(SocketPathTest, ResolvesAutoToRunDirectoryOrSystemdDirectory) {
  EXPECT_EQ(resolve_socket_path("auto", "runs/a", nullptr), "runs/a/control.sock");
  EXPECT_EQ(resolve_socket_path("auto", "runs/a", ""), "runs/a/control.sock");
  EXPECT_EQ(resolve_socket_path("auto", "runs/a", "/run/stoker"), "/run/stoker/control.sock");
  EXPECT_EQ(resolve_socket_path("auto", "runs/a", "/run/one:/run/two"), "/run/one/control.sock");
  EXPECT_EQ(resolve_socket_path("/tmp/x.sock", "runs/a", "/run/stoker"), "/tmp/x.sock");
}

TEST(SocketPathTest, UsesShortPathUnchanged) {
  const auto address = SocketAddress::of("/tmp/control.sock");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->text(), "/tmp/control.sock");
  EXPECT_EQ(address->name(), "control.sock");
}

TEST(SocketPathTest, ShortensLongPathThroughItsDirectory) {
  const test::TemporaryDirectory root;
  const std::string deep = root / std::string(200, 'd');
  std::filesystem::create_directories(deep);
  const auto address = SocketAddress::of(deep + "/control.sock");
  ASSERT_TRUE(address.ok()) << address.status().to_string();
  EXPECT_LE(address->text().size(), kMaxSocketPathBytes);
  EXPECT_THAT(address->text(), testing::StartsWith("/proc/self/fd/"));
  const auto exact = SocketAddress::of("/" + std::string(106, 'a'));
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(exact->text().size(), kMaxSocketPathBytes);
  EXPECT_FALSE(SocketAddress::of(deep + "/" + std::string(120, 'n')).ok())
      << "the name alone is too long";
}

TEST(SocketPathTest, RejectsPathWithoutFileName) {
  for (const std::string& path :
       {std::string(), std::string("/tmp/"), std::string("/tmp/a\0b", 8)}) {
    const auto address = SocketAddress::of(path);
    ASSERT_FALSE(address.ok());
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument);
  }
  const auto missing = SocketAddress::of("/nowhere/at/all/control.sock");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::control
