#include "shared/base/cgroup.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/own_cgroup.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using ::testing::ElementsAre;

class FindCgroupTest : public testing::Test {
 protected:
  std::optional<Cgroup> find(const std::string& cgroup_file, std::string_view controller = "cpu") {
    std::ofstream(folder_ / "cgroup") << cgroup_file;
    return find_cgroup(controller, folder_ / "cgroup", folder_ / "mount");
  }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_ / ("mount/" + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(FindCgroupTest, FindsDirectoriesOfGroupAndThoseAbove) {
  const std::string mount = folder_ / "mount";
  const auto v2 = find("0::/system.slice/stoker.service\n");
  ASSERT_TRUE(v2);
  EXPECT_TRUE(v2->is_v2);
  EXPECT_THAT(v2->directories,
              ElementsAre(mount + "/system.slice/stoker.service", mount + "/system.slice", mount));
  const auto v1 = find("5:memory:/other\n4:cpu,cpuacct:/a\n0::/\n");
  ASSERT_TRUE(v1);
  EXPECT_FALSE(v1->is_v2);
  EXPECT_THAT(v1->directories, ElementsAre(mount + "/cpu,cpuacct/a", mount + "/cpu,cpuacct"));
  EXPECT_THAT(find("0::/\n")->directories, ElementsAre(mount));
}

TEST_F(FindCgroupTest, UsesV2ForControllersThatV1DoesNotHave) {
  const auto group = find("4:cpuset:/a\n0::/b\n");
  ASSERT_TRUE(group);
  EXPECT_TRUE(group->is_v2);
  EXPECT_FALSE(find("4:cpuset:/a\n"));
  EXPECT_FALSE(find("garbage\n:\n"));
  EXPECT_FALSE(find_cgroup("cpu", folder_ / "no_such_file", folder_ / "mount"));
}

class UsableCoresTest : public FindCgroupTest {
 protected:
  // A machine with at least 2 cores shows a limit of 1.
  const int allowed_ = static_cast<int>(allowed_cores().size());
};

TEST_F(UsableCoresTest, AreThoseOfAffinityMaskWithoutQuota) {
  EXPECT_EQ(num_usable_cores(std::nullopt), allowed_);
  write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/a\n")), allowed_);
  write("cpu/a/cpu.cfs_quota_us", "-1\n");
  write("cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(num_usable_cores(find("4:cpu:/a\n")), allowed_);
  write("b/cpu.max", "garbage");
  EXPECT_EQ(num_usable_cores(find("0::/b\n")), allowed_);
  write("c/cpu.max", "100000 0\n");
  EXPECT_EQ(num_usable_cores(find("0::/c\n")), allowed_);
}

TEST_F(UsableCoresTest, AreLimitedByQuotaRoundedDown) {
  write("a/cpu.max", "190000 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/a\n")), 1);
  write("a/cpu.max", "20000 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/a\n")), 1);
  write("a/cpu.max", "6400000 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/a\n")), std::min(allowed_, 64));
  write("cpu,cpuacct/a/cpu.cfs_quota_us", "75000\n");
  write("cpu,cpuacct/a/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(num_usable_cores(find("4:cpu,cpuacct:/a\n")), 1);
}

TEST_F(UsableCoresTest, AreLimitedByQuotaOfGroupAbove) {
  write("a/cpu.max", "100000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/a/b\n")), 1);
}

TEST_F(UsableCoresTest, AreLimitedByQuotaOfContainerWhoseGroupIsNotMounted) {
  write("cpu.max", "100000 100000\n");
  EXPECT_EQ(num_usable_cores(find("0::/../docker/4711\n")), 1);
}

TEST_F(UsableCoresTest, FollowAffinityMask) {
  const int core = allowed_cores().front();
  std::thread([core] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_THAT(allowed_cores(), ElementsAre(core));
    EXPECT_EQ(num_usable_cores(), 1);
  }).join();
}

TEST_F(UsableCoresTest, FollowQuotaOfRealCgroup) {
  const auto group = test::OwnCgroup::with_one_core();
  if (!group.is_ready()) GTEST_SKIP() << "a control group with a CPU quota cannot be created";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(group.enter() ? num_usable_cores() : 99);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace stoker
