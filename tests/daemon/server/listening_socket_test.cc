#include "daemon/server/listening_socket.h"

#include <stdlib.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ListeningSocketTest : public testing::Test {
 protected:
  ListeningSocketTest() {
    char path[] = "/tmp/stoker-socket-XXXXXX";
    EXPECT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    path_ = root_ + "/control.sock";
  }
  ~ListeningSocketTest() override { fs::remove_all(root_); }

  // The socket file that a killed daemon leaves behind.
  void leave_stale_socket(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = control::SocketAddress::of(path);
    ASSERT_TRUE(address.ok());
    ASSERT_EQ(::bind(fd.get(), address->get(), address->length()), 0);
  }
  void expect_path_in_use(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(path_));
  }
  bool path_exists(const std::string& path) { return fs::exists(fs::symlink_status(path)); }

  std::string root_;
  std::string path_;
};

TEST_F(ListeningSocketTest, SetsOwnerAndGroupModeRegardlessOfUmask) {
  for (const mode_t mask : {0000u, 0022u, 0777u}) {
    const mode_t before = ::umask(mask);
    const auto socket = ListeningSocket::open(path_);
    ::umask(before);
    ASSERT_TRUE(socket.ok()) << socket.status().to_string();
    struct stat found {};
    ASSERT_EQ(::stat(path_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777u, 0660u) << mask;
  }
}

TEST_F(ListeningSocketTest, RemovesSocketFileOnDestruction) {
  {
    const auto socket = ListeningSocket::open(path_);
    ASSERT_TRUE(socket.ok());
    EXPECT_TRUE(fs::is_socket(path_));
  }
  EXPECT_FALSE(path_exists(path_));
}

TEST_F(ListeningSocketTest, ReplacesSocketOrLinkOfCrashedDaemon) {
  leave_stale_socket(path_);
  EXPECT_TRUE(ListeningSocket::open(path_).ok());
  leave_stale_socket(root_ + "/old.sock");
  fs::create_symlink(root_ + "/old.sock", path_);
  EXPECT_TRUE(ListeningSocket::open(path_).ok()) << "a link to a socket";
  fs::create_symlink(root_ + "/gone.sock", path_);
  EXPECT_TRUE(ListeningSocket::open(path_).ok()) << "a link to nothing";
  EXPECT_TRUE(path_exists(root_ + "/old.sock")) << "the link target is not removed";
}

TEST_F(ListeningSocketTest, RejectsExistingFilesDirectoriesAndLinksToThem) {
  std::ofstream(path_) << "other data";
  expect_path_in_use(ListeningSocket::open(path_).status());
  EXPECT_EQ(fs::file_size(path_), 10u);
  fs::rename(path_, root_ + "/file");
  fs::create_symlink(root_ + "/file", path_);
  expect_path_in_use(ListeningSocket::open(path_).status());
  EXPECT_TRUE(fs::is_symlink(path_));
  fs::remove(path_);
  fs::create_directory(path_);
  expect_path_in_use(ListeningSocket::open(path_).status());
  EXPECT_TRUE(fs::is_directory(path_));
}

TEST_F(ListeningSocketTest, DoesNotRemoveSocketOfSuccessor) {
  {
    const auto first = ListeningSocket::open(path_);
    ASSERT_TRUE(first.ok());
    fs::rename(path_, root_ + "/moved");  // prevents reuse of the inode
    leave_stale_socket(path_);
  }
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_F(ListeningSocketTest, RejectsMissingDirectoryAndInvalidName) {
  const auto missing = ListeningSocket::open(root_ + "/missing/control.sock");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ListeningSocket::open(root_ + "/").status().code(), StatusCode::kInvalidArgument);
  const auto long_name = ListeningSocket::open(root_ + "/" + std::string(120, 'n'));
  EXPECT_EQ(long_name.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ListeningSocketTest, ReplacesOnlyStaleLinkWithNewLink) {
  const std::string socket = root_ + "/elsewhere.sock";
  fs::create_symlink(root_ + "/gone.sock", path_);
  ASSERT_TRUE(link_socket(path_, socket).ok());
  EXPECT_EQ(fs::read_symlink(path_), socket);
  fs::remove(path_);
  std::ofstream(path_) << "other data";
  expect_path_in_use(link_socket(path_, socket));
  unlink_socket(path_, socket);
  EXPECT_EQ(fs::file_size(path_), 10u);
}

TEST_F(ListeningSocketTest, PreservesLinkToAnotherDaemon) {
  fs::create_symlink(root_ + "/other.sock", path_);
  unlink_socket(path_, root_ + "/mine.sock");
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(ListeningSocketTest, DoesNotReplaceSocketWithLinkToItself) {
  const auto socket = ListeningSocket::open(path_);
  ASSERT_TRUE(socket.ok());
  EXPECT_TRUE(link_socket(root_ + "/./control.sock", path_).ok());
  EXPECT_TRUE(fs::is_socket(fs::symlink_status(path_)));
}

}  // namespace
}  // namespace stoker::server
