#include "daemon/server/listening_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::server {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

class ListeningSocketTest : public testing::Test {
 protected:
  ListeningSocketTest() { path_ = root_ / "control.sock"; }

  // The socket file that a killed daemon leaves behind.
  void leave_stale_socket(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = control::SocketAddress::of(path);
    ASSERT_TRUE(address.ok());
    ASSERT_EQ(::bind(fd.get(), address->get(), address->length()), 0);
  }
  void expect_listener_reported(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_EQ(exit_code_for(status), ExitCode::kConfiguration);
    EXPECT_THAT(status.message(), HasSubstr("process " + std::to_string(::getpid())));
  }
  static ino_t inode_of(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0 ? found.st_ino : 0;
  }
  std::string staging() const { return root_ / ".control.sock.new"; }
  void expect_path_in_use(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(path_));
  }
  bool path_exists(const std::string& path) { return fs::exists(fs::symlink_status(path)); }

  const test::TemporaryDirectory root_{"/tmp"};
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
  leave_stale_socket(root_ / "old.sock");
  fs::create_symlink(root_ / "old.sock", path_);
  EXPECT_TRUE(ListeningSocket::open(path_).ok()) << "a link to a socket";
  fs::create_symlink(root_ / "gone.sock", path_);
  EXPECT_TRUE(ListeningSocket::open(path_).ok()) << "a link to nothing";
  EXPECT_TRUE(path_exists(root_ / "old.sock")) << "the link target is not removed";
}

// As a daemon that hangs or was stopped: the kernel accepts the connections.
TEST_F(ListeningSocketTest, RejectsSocketWithListenerThatNeverAnswers) {
  const auto first = ListeningSocket::open(path_);
  ASSERT_TRUE(first.ok());
  const ino_t inode = inode_of(path_);
  expect_listener_reported(ListeningSocket::open(path_, 10ms).status());
  fs::create_symlink(path_, root_ / "link.sock");
  expect_listener_reported(ListeningSocket::open(root_ / "link.sock", 10ms).status());
  EXPECT_TRUE(fs::is_symlink(root_ / "link.sock"));
  EXPECT_EQ(inode_of(path_), inode);
  EXPECT_FALSE(path_exists(staging()));
}

TEST_F(ListeningSocketTest, RejectsSocketOfAnotherType) {
  const UniqueFd datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address = control::SocketAddress::of(path_);
  ASSERT_EQ(::bind(datagrams.get(), address->get(), address->length()), 0);
  const auto socket = ListeningSocket::open(path_, 10ms);
  EXPECT_EQ(socket.status().code(), StatusCode::kInvalidArgument) << socket.status().to_string();
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_F(ListeningSocketTest, LetsOneOfSimultaneousStartsReplaceStaleSocket) {
  leave_stale_socket(path_);
  constexpr int kStarts = 6;
  std::atomic<int> ready{0};
  std::vector<std::optional<Result<ListeningSocket>>> sockets(kStarts);
  {
    std::vector<std::jthread> threads;
    for (auto& socket : sockets) {
      threads.emplace_back([&] {
        for (++ready; ready < kStarts;) std::this_thread::yield();
        socket.emplace(ListeningSocket::open(path_, 10ms));
      });
    }
  }
  int num_open = 0;
  for (const auto& socket : sockets) {
    if (socket->ok())
      ++num_open;
    else
      expect_listener_reported(socket->status());
  }
  EXPECT_EQ(num_open, 1);
  expect_listener_reported(ListeningSocket::open(path_, 10ms).status());
}

TEST_F(ListeningSocketTest, RemovesStagingDirectoryOfKilledStart) {
  fs::create_directory(staging());
  leave_stale_socket(staging() + "/control.sock");
  fs::permissions(staging(), fs::perms::all);
  const auto socket = ListeningSocket::open(path_);
  ASSERT_TRUE(socket.ok()) << socket.status().to_string();
  EXPECT_TRUE(fs::is_socket(path_));
  EXPECT_FALSE(path_exists(staging()));
}

TEST_F(ListeningSocketTest, RejectsStagingDirectoryOfAnotherUserOrLink) {
  fs::create_directory_symlink(root_.path(), staging());
  EXPECT_FALSE(ListeningSocket::open(path_).ok());
  EXPECT_FALSE(path_exists(path_));
  fs::remove(staging());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  fs::create_directory(staging());
  ASSERT_EQ(::chown(staging().c_str(), 4242, 4242), 0);
  const auto socket = ListeningSocket::open(path_);
  EXPECT_EQ(socket.status().code(), StatusCode::kPermission);
  EXPECT_THAT(socket.status().message(), HasSubstr(staging() + ": belongs to uid 4242"));
  EXPECT_FALSE(path_exists(path_));
}

TEST_F(ListeningSocketTest, ReplacesOnlyLinkNotSocketInUseWithNewLink) {
  const auto other = ListeningSocket::open(path_);
  ASSERT_TRUE(other.ok());
  expect_listener_reported(link_socket(path_, root_ / "mine.sock", 10ms));
  EXPECT_TRUE(fs::is_socket(fs::symlink_status(path_)));
  // The symlink of a crashed run, whose socket path another run uses now.
  fs::create_symlink(path_, root_ / "link.sock");
  EXPECT_TRUE(link_socket(root_ / "link.sock", root_ / "mine.sock", 10ms).ok());
  EXPECT_EQ(fs::read_symlink(root_ / "link.sock"), root_ / "mine.sock");
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_F(ListeningSocketTest, RejectsExistingFilesDirectoriesAndLinksToThem) {
  std::ofstream(path_) << "other data";
  expect_path_in_use(ListeningSocket::open(path_).status());
  EXPECT_EQ(fs::file_size(path_), 10u);
  fs::rename(path_, root_ / "file");
  fs::create_symlink(root_ / "file", path_);
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
    fs::rename(path_, root_ / "moved");  // prevents reuse of the inode
    leave_stale_socket(path_);
  }
  EXPECT_TRUE(fs::is_socket(path_));
}

TEST_F(ListeningSocketTest, RejectsMissingDirectoryAndInvalidName) {
  const auto missing = ListeningSocket::open(root_ / "missing/control.sock");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ListeningSocket::open(root_.path() + "/").status().code(),
            StatusCode::kInvalidArgument);
  const auto long_name = ListeningSocket::open(root_ / std::string(120, 'n'));
  EXPECT_EQ(long_name.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ListeningSocketTest, ReplacesOnlyStaleLinkWithNewLink) {
  const std::string socket = root_ / "elsewhere.sock";
  fs::create_symlink(root_ / "gone.sock", path_);
  ASSERT_TRUE(link_socket(path_, socket).ok());
  EXPECT_EQ(fs::read_symlink(path_), socket);
  fs::remove(path_);
  std::ofstream(path_) << "other data";
  expect_path_in_use(link_socket(path_, socket));
  unlink_socket(path_, socket);
  EXPECT_EQ(fs::file_size(path_), 10u);
}

TEST_F(ListeningSocketTest, PreservesLinkToAnotherDaemon) {
  fs::create_symlink(root_ / "other.sock", path_);
  unlink_socket(path_, root_ / "mine.sock");
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST_F(ListeningSocketTest, DoesNotReplaceSocketWithLinkToItself) {
  const auto socket = ListeningSocket::open(path_);
  ASSERT_TRUE(socket.ok());
  EXPECT_TRUE(link_socket(root_ / "./control.sock", path_).ok());
  EXPECT_TRUE(fs::is_socket(fs::symlink_status(path_)));
}

}  // namespace
}  // namespace stoker::server
