#include "daemon/group/core_share.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<AllowedCores> cores_of(const std::vector<std::string>& texts) {
  std::vector<AllowedCores> all;
  for (const std::string& text : texts) all.push_back(parse_allowed_cores(text));
  return all;
}

TEST(CoreShareTest, WritesRangesAsKernelDoes) {
  EXPECT_EQ(format_cores({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(format_cores({5}), "5");
  EXPECT_EQ(format_cores({}), "");
}

TEST(CoreShareTest, ReadsWhatItWrites) {
  const AllowedCores allowed{.host = "node 1", .cores = {0, 1, 2, 7, 9}};
  EXPECT_EQ(parse_allowed_cores(to_text(allowed)), allowed);
}

TEST(CoreShareTest, IgnoresInvalidList) {
  for (const char* const list : {"a 1-", "a -1", "a 1;2", "a 99999999999", "a x"})
    EXPECT_THAT(parse_allowed_cores(list).cores, IsEmpty()) << list;
}

TEST(CoreShareTest, DividesCoresThatAllRanksOfHostMayUse) {
  EXPECT_EQ(share_cores(cores_of({"a 0-7", "a 0-7", "b 0-7", "b 0-7"})), 4);
  EXPECT_EQ(share_cores(cores_of({"a 0-1", "a 0-1", "a 0-1"})), 1);
}

TEST(CoreShareTest, UsesAllCoresToWhichLauncherHasBoundRank) {
  EXPECT_EQ(share_cores(cores_of({"a 0-3", "a 4-7", "b 0-3", "b 4-7"})), 4);
}

TEST(CoreShareTest, TakesSmallestShareForAll) {
  EXPECT_EQ(share_cores(cores_of({"a 0-7", "b 0-2", "b 3-7"})), 3);
  EXPECT_EQ(share_cores(cores_of({"a 0-7", "a"})), 8);  // unknown
  EXPECT_EQ(share_cores({}), 1);
}

TEST(CoreShareTest, ReadsCoresOfThisProcess) {
  const AllowedCores own = read_allowed_cores();
  EXPECT_FALSE(own.host.empty());
  EXPECT_FALSE(own.cores.empty());
}

class NumaNodesTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  test::TemporaryDirectory directory_;
};

TEST_F(NumaNodesTest, NamesNodesOfCores) {
  write("online", "0-1\n");
  write("node0/cpulist", "0-3,8-11\n");
  write("node1/cpulist", "4-7,12-15\n");
  EXPECT_EQ(numa_nodes_of({4, 5}, directory_.path()), "1");
  EXPECT_EQ(numa_nodes_of({3, 4}, directory_.path()), "0-1");
}

TEST_F(NumaNodesTest, IsEmptyIfSystemDoesNotTell) {
  EXPECT_EQ(numa_nodes_of({0}, directory_.path()), "");
}

}  // namespace
}  // namespace stoker::group
