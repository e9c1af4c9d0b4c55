// Two users, and two containers with the same process ids, on one cache folder and one run.
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/service/run_directory.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/data/cache/shared_folder.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/config_parts.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::cache {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct User {
  uid_t id;
  gid_t group;
};
constexpr User kAlice{.id = 61001, .group = 62000};
constexpr User kBob{.id = 61002, .group = 62000};      // in the group of Alice
constexpr User kMallory{.id = 61666, .group = 62666};  // in no group of theirs

// A process that runs `what` and whose result, a text, is collected.
class Child {
 public:
  explicit Child(const std::function<std::string()>& what) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      const std::string text = what();
      const bool is_written =
          ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      ::_exit(is_written ? 0 : 1);
    }
    ::close(ends[1]);
    output_ = UniqueFd(ends[0]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Waits until the process has reported something, or has ended.
  std::string text() {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    return {buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

bool become(const User& user) {
  const bool done = ::setgroups(1, &user.group) == 0 &&
                    ::setresgid(user.group, user.group, user.group) == 0 &&
                    ::setresuid(user.id, user.id, user.id) == 0;
  ::umask(027);
  return done && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

std::string as_user(const User& user, const std::function<std::string()>& what) {
  return Child([&] { return become(user) ? what() : "cannot become another user"; }).text();
}

// The first process of a new PID namespace: its id is 1, as in every container.
std::string in_container(const std::function<std::string()>& what) {
  if (::unshare(CLONE_NEWPID) != 0) return "cannot create a PID namespace";
  return Child([&] { return ::getpid() == 1 ? what() : "not process 1"; }).text();
}

// Folders below /mnt in a mount namespace of this test, because no other user may write there. /tmp
// is writable by all.
class SharedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be several users";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/mnt", "tmpfs", 0, "mode=0755,size=64m") != 0)
      GTEST_SKIP() << "needs a mount namespace: " << std::strerror(errno);
    ::umask(022);
    std::filesystem::create_directories("/mnt/data/a");
    std::filesystem::create_directories("/mnt/data/b");
    for (uint32_t i = 0; i < 4; ++i)
      test::write_whole(std::string("/mnt/data/") + (i % 2 == 0 ? "a/" : "b/") + std::to_string(i),
                        image::testing::encode_jpeg(image::testing::pattern(40 + i, 50)));
    for (const User& user : {kAlice, kBob, kMallory}) folder(run_of(user), user, 0755);
  }
  void TearDown() override {
    if (!IsSkipped()) ::umount2("/mnt", MNT_DETACH);
  }

  static std::string run_of(const User& user) { return "/mnt/run-" + std::to_string(user.id); }
  static void folder(const std::string& path, const User& owner, mode_t mode) {
    std::filesystem::create_directories(path);
    ASSERT_EQ(::chown(path.c_str(), owner.id, owner.group), 0) << path;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path;
  }
  // Reads all samples as this user's run does: their hash, or the error.
  static std::string train(const User& user, config::CacheType type) {
    return as_user(user, [&]() -> std::string {
      ::alarm(60);
      config::DatasetConfig config;
      config.source = config::ImageFolderDataset{};
      path_in(config) = "/mnt/data";
      glob_in(config) = "**/*";
      transforms_in(config) = {config::Resize{{20, 30}}};
      cache_in(config) = config::CacheConfig{.type = type, .dir = "/mnt/cache"};
      const auto dataset = pipeline::open_dataset("train", config, run_of(user), {});
      if (!dataset.ok()) return dataset.status().to_string();
      Sha256 hash;
      for (uint64_t sample = 0; sample < (*dataset)->size(); ++sample) {
        const testing::Sample read = testing::read_sample(**dataset, sample);
        if (!read.status.ok()) return read.status.to_string();
        hash.update(read.text());
      }
      return "read " + hash.finish_hex();
    });
  }
  static std::string cache_file() {
    for (const auto& entry : std::filesystem::directory_iterator("/mnt/cache"))
      if (entry.path().filename() != "CACHE_LOCK") return entry.path();
    return "no cache file";
  }
  static struct stat info_of(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info;
  }
};

constexpr auto kTypes = {config::CacheType::kPacked, config::CacheType::kDecoded};

TEST_F(SharedCacheTest, SecondUserReadsCompleteCacheOfFirst) {
  for (const config::CacheType type : kTypes) {
    std::filesystem::remove_all("/mnt/cache");
    folder("/mnt/cache", kAlice, 0750);
    const std::string first = train(kAlice, type);
    ASSERT_THAT(first, StartsWith("read "));
    EXPECT_EQ(train(kBob, type), first);
    EXPECT_EQ(info_of(cache_file()).st_uid, kAlice.id);
    EXPECT_THAT(train(kMallory, type), HasSubstr("data.train.cache.dir: "));
  }
}

TEST_F(SharedCacheTest, MembersOfGroupFillCacheTogether) {
  folder("/mnt/cache", {.id = 0, .group = kAlice.group}, 02770);
  const std::string first = train(kAlice, config::CacheType::kDecoded);
  ASSERT_THAT(first, StartsWith("read "));
  EXPECT_EQ(info_of(cache_file()).st_mode & 0777, 0660u);
  // Emptied: Bob decodes the samples again and stores them in the file of Alice.
  const std::string whole = *read_file(cache_file(), 1 << 20);
  test::write_whole(cache_file(), whole.substr(0, 96) + std::string(whole.size() - 96, '\0'));
  EXPECT_EQ(train(kBob, config::CacheType::kDecoded), first);
  EXPECT_EQ(*read_file(cache_file(), 1 << 20), whole);
  EXPECT_EQ(info_of(cache_file()).st_uid, kAlice.id);
  // And Bob creates one that Alice uses.
  std::filesystem::remove(cache_file());
  EXPECT_EQ(train(kBob, config::CacheType::kPacked), first);
  EXPECT_EQ(train(kAlice, config::CacheType::kPacked), first);
  EXPECT_EQ(info_of(cache_file()).st_uid, kBob.id);
}

TEST_F(SharedCacheTest, UsesNoFileOfUntrustedUser) {
  for (const config::CacheType type : kTypes) {
    std::filesystem::remove_all("/mnt/cache");
    folder("/mnt/cache", {.id = 0, .group = 0}, 01777);
    ASSERT_THAT(train(kMallory, type), StartsWith("read "));
    EXPECT_THAT(train(kAlice, type), HasSubstr("belongs to user 61666, and anybody may write"));
  }
  // A link to a file that Alice trusts.
  const std::string name = cache_file();
  std::filesystem::rename(name, "/mnt/moved");
  ASSERT_EQ(::chown("/mnt/moved", 0, 0), 0);
  std::filesystem::create_symlink("/mnt/moved", name);
  EXPECT_THAT(train(kAlice, config::CacheType::kDecoded), HasSubstr("is not a regular file"));
}

TEST_F(SharedCacheTest, UsesNoFolderOfUntrustedUserWhereAnybodyMayWrite) {
  folder("/mnt/open", {.id = 0, .group = 0}, 01777);
  folder("/mnt/open/cache", kMallory, 0755);
  std::filesystem::create_symlink("/mnt/open/cache", "/mnt/cache");
  ASSERT_THAT(train(kMallory, config::CacheType::kPacked), StartsWith("read "));
  EXPECT_THAT(train(kAlice, config::CacheType::kPacked),
              HasSubstr("anybody may write to a folder above"));
}

// The folder of the link is open, that of the files is not.
TEST_F(SharedCacheTest, UsesNoFolderBehindLinkOfUntrustedUser) {
  folder("/mnt/open", {.id = 0, .group = 0}, 01777);
  folder("/mnt/open/folder", kMallory, 0755);
  folder("/mnt/home", kMallory, 0755);
  std::filesystem::create_symlink("../../home", "/mnt/open/folder/link");
  std::filesystem::create_symlink("/mnt/home", "/mnt/cache");
  ASSERT_THAT(train(kMallory, config::CacheType::kPacked), StartsWith("read "));
  std::filesystem::remove("/mnt/cache");
  std::filesystem::create_symlink("/mnt/open/folder/link", "/mnt/cache");
  EXPECT_THAT(train(kAlice, config::CacheType::kPacked),
              HasSubstr("anybody may write to a folder above"));
}

// With size, time and inode of the one that the index names: an inode that is free is given to the next file.
TEST_F(SharedCacheTest, UsesNoFileThatUntrustedUserHasPutInPlaceOfIndexedOne) {
  folder("/mnt/cache", {.id = 0, .group = 0}, 0777);
  const std::string first = train(kAlice, config::CacheType::kPacked);
  ASSERT_THAT(first, StartsWith("read "));
  EXPECT_EQ(train(kAlice, config::CacheType::kPacked), first);
  ASSERT_EQ(::chown(cache_file().c_str(), kMallory.id, kMallory.group), 0);
  EXPECT_THAT(train(kAlice, config::CacheType::kPacked),
              HasSubstr("belongs to user 61666, and anybody may write to the folder"));
}

TEST_F(SharedCacheTest, DoesNotWaitForLockOfUntrustedUser) {
  folder("/mnt/cache", {.id = 0, .group = 0}, 01777);
  Child holder([] {
    if (!become(kMallory)) return std::string("cannot become another user");
    const int lock = ::open("/mnt/cache/CACHE_LOCK", O_RDWR | O_CREAT, 0666);
    (void)::fchmod(lock, 0666);
    if (::flock(lock, LOCK_EX) != 0) return std::string("no lock");
    test::write_whole(run_of(kMallory) + "/held", "");
    ::pause();
    return std::string();
  });
  ASSERT_TRUE(
      test::eventually([&] { return ::access((run_of(kMallory) + "/held").c_str(), F_OK) == 0; }));
  EXPECT_THAT(train(kAlice, config::CacheType::kPacked), StartsWith("read "));
}

std::string open_run_as(const User& user) {
  return as_user(user, [] {
    const auto run = service::RunDirectory::open(run::RunLayout("/mnt/run"), system_clock(),
                                                 default_file_system());
    return run.ok() ? "ok" : run.status().to_string();
  });
}

// Paths, owners and contents below a folder.
std::vector<std::string> content_of_tree(const std::string& folder) {
  std::vector<std::string> content;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat info {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &info), 0) << entry.path();
    content.push_back(entry.path().string() + ' ' + std::to_string(info.st_uid) + ' ' +
                      (entry.is_regular_file() ? *read_file(entry.path(), 1 << 20) : ""));
  }
  std::ranges::sort(content);
  return content;
}

TEST_F(SharedCacheTest, OtherUsersNeitherOpenNorChangeRun) {
  folder("/mnt/run", kAlice, 0750);
  ASSERT_EQ(open_run_as(kAlice), "ok");
  const std::vector<std::string> before = content_of_tree("/mnt/run");
  ASSERT_FALSE(before.empty());
  for (const User& user : {kBob, kMallory}) {
    const std::string error = open_run_as(user);
    EXPECT_THAT(error, HasSubstr("/mnt/run")) << user.id;
    EXPECT_EQ(content_of_tree("/mnt/run"), before) << user.id;
  }
  EXPECT_EQ(open_run_as(kAlice), "ok");
}

class ContainersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to create PID namespaces";
    if (in_container_once([] { return std::string("ok"); }) != "ok")
      GTEST_SKIP() << "PID namespaces are not permitted";
  }
  // From a separate process, because unshare() sets where all later children go.
  static std::string in_container_once(const std::function<std::string()>& what) {
    return Child([&] { return in_container(what); }).text();
  }
  const test::TemporaryDirectory directory_;
};

constexpr int kRounds = 100;

// Both create every file; one of them wins.
TEST_F(ContainersTest, CreateEachCacheFileOnce) {
  const auto create_all = [&](SharedFolder::Incomplete incomplete, char byte) {
    const auto folder = SharedFolder::open(directory_.path());
    if (!folder.ok()) return folder.status().to_string();
    const std::string content(5000, byte);
    int created = 0;
    for (int round = 0; round < kRounds; ++round) {
      folder->remove_leftovers();
      const Status status = folder->create_file(
          std::to_string(round), SharedFolder::Access::kRead,
          [&](int fd, const std::string& name) {
            return default_file_system().write(fd, std::as_bytes(std::span(content)), name);
          },
          incomplete);
      created += status.ok() ? 1 : 0;
      if (!status.ok() && status.code() != StatusCode::kAlreadyExists) return status.to_string();
    }
    return std::to_string(created);
  };
  for (const auto incomplete :
       {SharedFolder::Incomplete::kUnnamed, SharedFolder::Incomplete::kNamed}) {
    Child one([&] { return in_container([&] { return create_all(incomplete, 'a'); }); });
    Child two([&] { return in_container([&] { return create_all(incomplete, 'b'); }); });
    const std::string first = one.text(), second = two.text();
    EXPECT_EQ(std::atoi(first.c_str()) + std::atoi(second.c_str()), kRounds) << first << '\n'
                                                                             << second;
    const auto names = *list_directory(directory_.path());
    EXPECT_EQ(names.size(), static_cast<size_t>(kRounds));
    for (const std::string& name : names) {
      const std::string text = *read_file(directory_ / name, 1 << 20);
      EXPECT_TRUE(text == std::string(5000, 'a') || text == std::string(5000, 'b')) << name;
      ASSERT_TRUE(default_file_system().remove_file(directory_ / name).ok());
    }
  }
}

TEST_F(ContainersTest, ReplaceOneFileAtomically) {
  const auto write_often = [&](char byte) -> std::string {
    for (int round = 0; round < kRounds; ++round) {
      const Status status = write_file_atomically(default_file_system(), directory_ / "file",
                                                  std::string(5000, byte));
      if (!status.ok()) return status.to_string();
    }
    return "ok";
  };
  Child one([&] { return in_container([&] { return write_often('a'); }); });
  Child two([&] { return in_container([&] { return write_often('b'); }); });
  EXPECT_EQ(one.text(), "ok");
  EXPECT_EQ(two.text(), "ok");
  const auto text = read_file(directory_ / "file", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_TRUE(*text == std::string(5000, 'a') || *text == std::string(5000, 'b'));
  EXPECT_EQ(*list_directory(directory_.path()), std::vector<std::string>{"file"});
}

TEST_F(ContainersTest, RunIsLockedUntilItsContainerIsKilled) {
  const auto open_run = [&]() -> std::string {
    const auto run = service::RunDirectory::open(run::RunLayout(directory_ / "run"), system_clock(),
                                                 default_file_system());
    return run.ok() ? "ok" : run.status().to_string();
  };
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  Child holder([&] {
    return in_container([&]() -> std::string {
      const auto run = service::RunDirectory::open(run::RunLayout(directory_ / "run"),
                                                   system_clock(), default_file_system());
      const char answer = run.ok() ? 'y' : 'n';
      if (::write(ready[1], &answer, 1) == 1) ::pause();
      return "";
    });
  });
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const std::string rejected = in_container_once(open_run);
  EXPECT_THAT(rejected, HasSubstr("another stokerd uses this directory"));
  EXPECT_THAT(rejected, HasSubstr("pid=1 "));
  holder.kill();  // its container ends with it
  std::string second;
  EXPECT_TRUE(test::eventually([&] {
    second = in_container_once(open_run);
    return second == "ok";
  })) << second;
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace stoker::data::cache
