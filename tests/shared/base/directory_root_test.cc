#include "shared/base/directory_root.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A directory `run`, and the folder `victim` with files that no access to `run` may read or change.
class DirectoryRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(run("folder"));
    fs::create_directories(victim("requests"));
    test::write_whole(victim("secret"), "secret");
    test::write_whole(victim(".secret.tmp-0123456789abcdef"), "unsaved");
    before_ = victims();
  }
  void TearDown() override { EXPECT_EQ(victims(), before_) << "something outside was changed"; }

  std::string run(const std::string& name = "") const {
    return base_ / (name.empty() ? "run" : "run/" + name);
  }
  std::string victim(const std::string& name = "") const {
    return base_ / (name.empty() ? "victim" : "victim/" + name);
  }
  DirectoryRoot open_root() const {
    auto root = DirectoryRoot::open(run());
    EXPECT_TRUE(root.ok()) << root.status().to_string();
    return *std::move(root);
  }
  std::map<std::string, std::string> victims() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(victim())) {
      std::ifstream file(entry.path());
      files[entry.path()] =
          entry.is_directory() ? "" : std::string(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  }

  const test::TemporaryDirectory base_;
  FileSystem& files_ = default_file_system();
  std::map<std::string, std::string> before_;
};

TEST_F(DirectoryRootTest, CreatesDirectoryThatLinkDoesNotReplace) {
  fs::create_directory_symlink(victim(), base_ / "link");
  EXPECT_EQ(DirectoryRoot::create(base_ / "link", 0755).status().code(),
            StatusCode::kAlreadyExists);
  const std::string path = base_ / "new";
  const auto root = DirectoryRoot::create(path, 0755);
  ASSERT_TRUE(root.ok());
  fs::rename(path, base_ / "moved");
  fs::create_directory_symlink(victim(), path);
  ASSERT_TRUE(write_file_atomically(files_, path + "/file", "content").ok());
  EXPECT_TRUE(fs::exists(base_ / "moved/file"));
}

struct Access {
  const char* name;
  std::function<Status(FileSystem&, const std::string& path)> run;
};

// Everything that programs do with a file of a run.
const std::vector<Access>& accesses() {
  static const std::vector<Access> all = {
      {"read", [](FileSystem&, const std::string& path) { return read_file(path, 100).status(); }},
      {"replace",
       [](FileSystem& files, const std::string& path) {
         return write_file_atomically(files, path, "overwritten");
       }},
      {"append",
       [](FileSystem& files, const std::string& path) {
         return files.open(path, O_WRONLY | O_APPEND | O_CREAT).status();
       }},
      {"truncate",
       [](FileSystem& files, const std::string& path) {
         return files.open(path, O_RDWR | O_CREAT | O_TRUNC).status();
       }},
      {"create", [](FileSystem& files,
                    const std::string& path) { return files.open(path, kNewFile).status(); }},
      {"lock", [](FileSystem&, const std::string& path) { return lock_file(path, "me").status(); }},
      {"query lock", [](FileSystem&, const std::string& path) { return is_locked(path).status(); }},
      {"list", [](FileSystem&, const std::string& path) { return list_directory(path).status(); }},
      {"remove temporary files",
       [](FileSystem& files, const std::string& path) {
         return remove_temporary_files(files, path);
       }},
      {"make directories",
       [](FileSystem& files, const std::string& path) {
         return make_directories(files, path + "/one/two");
       }},
      {"sync directory",
       [](FileSystem& files, const std::string& path) { return files.sync_directory(path); }},
      {"free bytes",
       [](FileSystem& files, const std::string& path) { return files.free_bytes(path).status(); }},
  };
  return all;
}

TEST_F(DirectoryRootTest, FollowsNoLinkInPlaceOfAnyFile) {
  const DirectoryRoot root = open_root();
  for (const Access& access : accesses()) {
    for (const std::string& target : {victim("secret"), victim(), victim("none")}) {
      const std::string link = run("folder/link");
      ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
      const Status done = access.run(files_, link);
      // What creates a file, or replaces one, does not need to follow the link.
      const bool is_replaced = std::string_view(access.name) == "replace";
      EXPECT_EQ(done.ok(), is_replaced) << access.name << " " << target;
      if (!done.ok()) {
        EXPECT_THAT(done.message(), HasSubstr(link)) << access.name;
      }
      fs::remove(link);
    }
  }
}

TEST_F(DirectoryRootTest, FollowsNoLinkInPlaceOfAnyFolder) {
  const DirectoryRoot root = open_root();
  ASSERT_EQ(::symlink(victim().c_str(), run("eval").c_str()), 0);
  ASSERT_EQ(::symlink("eval", run("relative").c_str()), 0);
  ASSERT_EQ(::symlink("folder", run("inside").c_str()), 0);
  for (const char* const folder : {"eval", "relative", "inside", "folder/../eval"}) {
    for (const Access& access : accesses()) {
      for (const char* const name : {"/secret", "/requests", "/none"}) {
        const std::string path = run(folder + std::string(name));
        EXPECT_FALSE(access.run(files_, path).ok()) << access.name << " " << path;
      }
    }
    const std::string path = run(folder + std::string("/secret"));
    const std::string own = run("folder/own");
    test::write_whole(own, "own");
    EXPECT_FALSE(files_.remove_file(path).ok());
    EXPECT_FALSE(files_.remove_tree(path).ok());
    EXPECT_FALSE(files_.rename(path, run("folder/stolen")).ok());
    EXPECT_FALSE(files_.rename(own, path).ok());
    EXPECT_FALSE(files_.rename_noreplace(own, run(folder + std::string("/new"))).ok());
  }
}

TEST_F(DirectoryRootTest, RemovesLinksWithoutTheirTargets) {
  const DirectoryRoot root = open_root();
  ASSERT_EQ(::symlink(victim().c_str(), run("one").c_str()), 0);
  ASSERT_EQ(::symlink(victim().c_str(), run("folder/two").c_str()), 0);
  EXPECT_TRUE(files_.remove_file(run("one")).ok());
  EXPECT_TRUE(files_.remove_tree(run("folder")).ok());
  EXPECT_TRUE(list_directory(run())->empty());
  EXPECT_TRUE(files_.remove_tree(run("none/below")).ok());
}

TEST_F(DirectoryRootTest, OpensNoSpecialFile) {
  const DirectoryRoot root = open_root();
  ASSERT_EQ(::mkfifo(run("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mknod(run("socket").c_str(), S_IFSOCK | 0600, 0), 0);
  for (const std::string name : {"fifo", "socket", "folder"}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_APPEND | O_CREAT}) {
      if (name == "folder" && flags != O_RDONLY) continue;
      const auto opened = files_.open(run(name), flags);
      EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument) << name << " " << flags;
      EXPECT_THAT(opened.status().message(), HasSubstr(run(name) + ": not a regular file"));
    }
    EXPECT_FALSE(lock_file(run(name), "me").ok()) << name;
    EXPECT_FALSE(is_locked(run(name)).ok()) << name;
  }
}

// Where the kernel has no openat2(), or a filter denies it.
TEST_F(DirectoryRootTest, ResolvesComponentsAsKernelDoes) {
  ASSERT_EQ(::symlink(victim().c_str(), run("eval").c_str()), 0);
  ASSERT_EQ(::symlink(victim("secret").c_str(), run("folder/link").c_str()), 0);
  ASSERT_EQ(::mkfifo(run("folder/fifo").c_str(), 0600), 0);
  test::write_whole(run("folder/file"), "own");
  const UniqueFd root(::open(run().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const char* const path :
       {"", "folder", "folder/file", "folder/none", "folder/link", "folder/fifo", "eval",
        "eval/secret", "folder/file/below", "..", "folder/../../victim/secret", "/etc/passwd"}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDONLY | O_DIRECTORY, O_PATH}) {
      const auto by_kernel = open_beneath(root.get(), path, flags, 0, path);
      const auto by_components =
          open_beneath(root.get(), path, flags, 0, path, PathResolution::kComponents);
      EXPECT_EQ(by_kernel.ok(), by_components.ok()) << path << " " << flags;
      EXPECT_EQ(by_kernel.status().code(), by_components.status().code())
          << path << " " << flags << ": " << by_kernel.status().to_string() << "; "
          << by_components.status().to_string();
    }
  }
  for (const auto resolution : {PathResolution::kKernel, PathResolution::kComponents}) {
    const std::string name = "folder/new" + std::to_string(static_cast<int>(resolution));
    ASSERT_TRUE(
        open_beneath(root.get(), name, O_WRONLY | O_CREAT | O_EXCL, 0640, name, resolution).ok());
    struct stat info {};
    ASSERT_EQ(::stat(run(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0137u, 0u) << "the mode is not set";
  }
}

TEST_F(DirectoryRootTest, StaysInDirectoryWhosePathIsReplaced) {
  const DirectoryRoot root = open_root();
  fs::rename(run(), base_ / "moved");
  EXPECT_FALSE(root.is_replaced()) << "there is none";
  ASSERT_EQ(::symlink(victim().c_str(), run().c_str()), 0);
  EXPECT_TRUE(root.is_replaced());
  ASSERT_TRUE(write_file_atomically(files_, run("secret"), "own").ok());
  EXPECT_EQ(*read_file(run("secret"), 100), "own");
  EXPECT_TRUE(fs::exists(base_ / "moved/secret"));
  EXPECT_EQ(*list_directory(run()), (std::vector<std::string>{"folder", "secret"}));
}

TEST_F(DirectoryRootTest, WritesToNoHardLinkInDirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  ASSERT_EQ(::link(victim("secret").c_str(), run("linked").c_str()), 0);
  test::write_whole(run("alone"), "own");
  ASSERT_EQ(::chown(run().c_str(), 4242, 0), 0);
  const DirectoryRoot root = open_root();
  for (const int flags : {O_WRONLY | O_APPEND, O_RDWR | O_CREAT, O_WRONLY | O_TRUNC}) {
    const auto opened = files_.open(run("linked"), flags);
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument) << flags;
    EXPECT_THAT(opened.status().message(), HasSubstr("has 2 hard links"));
    EXPECT_TRUE(files_.open(run("alone"), flags).ok()) << flags;
  }
  EXPECT_FALSE(lock_file(run("linked"), "me").ok());
  EXPECT_EQ(*read_file(run("alone"), 100), "") << "truncated";
  EXPECT_EQ(*read_file(run("linked"), 100), "secret");
  ASSERT_TRUE(write_file_atomically(files_, run("linked"), "replaced").ok());
}

// Else the owner could neither read nor change it. Secrets of root stay its own.
TEST_F(DirectoryRootTest, GivesWhatRootCreatesToOwnerOfDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  test::write_whole(run("own"), "of root before");
  ASSERT_EQ(::chown(run().c_str(), 4242, 4243), 0);
  const DirectoryRoot root = open_root();
  ASSERT_TRUE(make_directories(files_, run("new/folder")).ok());
  ASSERT_TRUE(write_file_atomically(files_, run("new/replaced"), "text").ok());
  ASSERT_TRUE(lock_file(run("lock"), "me").ok());
  ASSERT_TRUE(files_.open(run("log"), O_WRONLY | O_APPEND | O_CREAT).ok());
  ASSERT_TRUE(files_.open(run("own"), O_WRONLY | O_APPEND | O_CREAT).ok());
  ASSERT_TRUE(write_private_file_atomically(files_, run("private"), "secret").ok());
  const auto owner_of = [&](const std::string& name) {
    struct stat info {};
    EXPECT_EQ(::lstat(run(name).c_str(), &info), 0) << name;
    return std::pair(info.st_uid, info.st_gid);
  };
  const std::pair<uid_t, gid_t> owner(4242, 4243), of_root(0, 0);
  for (const char* const name : {"new", "new/folder", "new/replaced", "lock", "log"})
    EXPECT_EQ(owner_of(name), owner) << name;
  for (const char* const name : {"own", "private"}) EXPECT_EQ(owner_of(name), of_root) << name;
}

// A snapshot of a run with hard links, as of cp -al, is one of its owner.
TEST_F(DirectoryRootTest, WritesToHardLinkInOwnDirectory) {
  test::write_whole(run("first"), "own");
  ASSERT_EQ(::link(run("first").c_str(), run("second").c_str()), 0);
  const DirectoryRoot root = open_root();
  EXPECT_TRUE(files_.open(run("first"), O_WRONLY | O_APPEND).ok());
}

TEST_F(DirectoryRootTest, AppliesToEverySpellingOfItsPath) {
  ASSERT_EQ(::symlink(run().c_str(), (base_ / "link").c_str()), 0);
  ASSERT_EQ(::symlink(victim("secret").c_str(), run("out").c_str()), 0);
  test::write_whole(run("in"), "own");
  const auto root = DirectoryRoot::open(base_ / "link/");
  ASSERT_TRUE(root.ok());
  for (const std::string& folder :
       {base_ / "link", base_ / "link/", base_ / "link/.", run(), run() + "//folder/.."}) {
    EXPECT_EQ(*read_file(folder + "/in", 100), "own") << folder;
    EXPECT_FALSE(read_file(folder + "/out", 100).ok()) << folder;
  }
  EXPECT_EQ(*read_file(run("../victim/secret"), 100), "secret") << "not below the directory";
  EXPECT_EQ(*read_file(victim("secret"), 100), "secret");
  test::write_whole(base_ / "running", "own");
  EXPECT_EQ(*read_file(base_ / "running", 100), "own") << "begins with the same letters";
}

TEST_F(DirectoryRootTest, EndsWithObject) {
  ASSERT_EQ(::symlink(victim("secret").c_str(), run("link").c_str()), 0);
  {
    const DirectoryRoot outer = open_root();
    { const DirectoryRoot inner = open_root(); }
    EXPECT_FALSE(read_file(run("link"), 100).ok()) << "the other one is still open";
  }
  EXPECT_EQ(*read_file(run("link"), 100), "secret");
}

TEST_F(DirectoryRootTest, ReportsMissingDirectory) {
  EXPECT_EQ(DirectoryRoot::open(base_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(DirectoryRoot::open("").status().code(), StatusCode::kNotFound);
}

// Each path leads where open(2) of the kernel leads.
TEST_F(DirectoryRootTest, ResolvesItsPathAsKernelDoes) {
  fs::create_directories(run("a/b"));
  test::write_whole(run("file"), "");
  const auto link = [&](const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), run(name).c_str()), 0);
  };
  link("a/b", "relative");
  link(run("a"), "absolute");
  link("../..", "a/b/up");
  link("relative/up/absolute", "chain");
  link("loop", "loop");
  link("none", "dangling");
  link("file", "to_file");
  const fs::path before = fs::current_path();
  fs::current_path(run("a"));
  for (const std::string& path :
       {run(), run("a//b/"), run("a/./b/.."), run("relative"), run("absolute/b"), run("chain"),
        run("chain/b/up/"), std::string("b"), std::string("."), std::string("../relative/"),
        std::string("/"), run("loop"), run("dangling"), run("file"), run("to_file"),
        run("file/below"), run("to_file/below"), run("none/below")}) {
    const int expected = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const Status by_kernel = expected < 0 ? Status::from_errno(errno, "open " + path) : Status();
    const UniqueFd close_it(expected);
    const auto root = DirectoryRoot::open(path);
    EXPECT_EQ(root.status().message(), by_kernel.message()) << path;
    if (expected < 0 || path == "/") continue;
    test::write_whole((fs::path(path) / "mark").string(), path);
    EXPECT_EQ(*read_file(path + "/mark", 200), path);
  }
  fs::current_path(before);
}

// Two users 4242 and 4243, and this one, who is root.
class LinksOfOthersTest : public DirectoryRootTest {
 protected:
  void SetUp() override {
    DirectoryRootTest::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link to another user";
  }
  static void give(const std::string& path, uid_t owner) {
    ASSERT_EQ(::lchown(path.c_str(), owner, owner), 0);
  }
  std::string link_of(uid_t owner, const std::string& target) {
    const std::string link = base_ / ("link" + std::to_string(count_++));
    EXPECT_EQ(::symlink(target.c_str(), link.c_str()), 0);
    give(link, owner);
    return link;
  }
  int count_ = 0;
};

TEST_F(LinksOfOthersTest, LeadToDirectoriesOfTheirOwnersOnly) {
  const std::string to_own = link_of(4242, run());
  const Status rejected = DirectoryRoot::open(to_own).status();
  EXPECT_EQ(exit_code_for(rejected), ExitCode::kConfiguration);
  EXPECT_EQ(rejected.message(), to_own + ": leads through the symlink " + to_own +
                                    " of uid 4242, who can change where it leads; use the path "
                                    "behind it (" +
                                    run() + "), or chown -h it to yourself or root");
  EXPECT_TRUE(DirectoryRoot::open(to_own, PathLinks::kOfAnyUser).ok()) << "only shown";
  EXPECT_TRUE(DirectoryRoot::open(link_of(0, run())).ok());
  give(run(), 4242);
  EXPECT_TRUE(DirectoryRoot::open(to_own).ok()) << "the run of the same user";
  EXPECT_TRUE(DirectoryRoot::open(link_of(0, to_own)).ok());
  EXPECT_FALSE(DirectoryRoot::open(link_of(4243, to_own)).ok());
  EXPECT_FALSE(DirectoryRoot::open(link_of(4243, run())).ok());
}

TEST_F(LinksOfOthersTest, AreFoundAnywhereOnPath) {
  fs::create_directories(run("a/b"));
  const std::string folder = link_of(4242, run("a"));
  for (const std::string& path : {folder + "/b", folder + "/b/", folder + "/../a/b",
                                  link_of(0, folder + "/b"), link_of(0, folder) + "/b"}) {
    const Status rejected = DirectoryRoot::open(path).status();
    EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(rejected.message(), HasSubstr("the symlink " + folder + " of uid 4242"));
  }
  fs::create_symlink("b", run("a/c"));
  give(run("a/c"), 4242);
  EXPECT_THAT(DirectoryRoot::open(run("a/c")).status().message(),
              HasSubstr("the symlink " + run("a/c") +
                        " of uid 4242, who can change where it leads; use the path behind it (" +
                        run("a/b") + ")"));
}

}  // namespace
}  // namespace stoker
