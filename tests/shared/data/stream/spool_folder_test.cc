#include "shared/data/stream/spool_folder.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::stream {
namespace {

using test::write_whole;
using ::testing::ElementsAre;
using testing::eventually;
using ::testing::IsEmpty;

class SpoolFolderTest : public ::testing::Test {
 protected:
  // As a producer does: under a hidden name first.
  void add(const std::string& name) const {
    write_whole(folder_ / ("." + name), name);
    std::filesystem::rename(folder_ / ("." + name), folder_ / name);
  }
  SpoolFolder open(std::set<std::string> taken = {}) const {
    auto opened = SpoolFolder::open(folder_.path(), std::move(taken));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return *std::move(opened);
  }
  // The name of the next file; empty at the end.
  std::string next(SpoolFolder& spool) const {
    const auto path = spool.next({});
    EXPECT_TRUE(path.ok()) << path.status().to_string();
    return path && *path ? std::filesystem::path(**path).filename().string() : "";
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(SpoolFolderTest, ReturnsFilesInOrderOfNamesUntilEnd) {
  for (const char* name : {"c", "a", "b"}) add(name);
  SpoolFolder spool = open();
  EXPECT_EQ(next(spool), "a");
  EXPECT_EQ(next(spool), "b");
  add("aa");  // late, and still the lowest
  EXPECT_EQ(next(spool), "aa");
  EXPECT_EQ(next(spool), "c");
  write_whole(folder_ / SpoolFolder::kEnd, "");
  EXPECT_EQ(next(spool), "");
  EXPECT_THAT(spool.taken(), ElementsAre("a", "aa", "b", "c"));
}

TEST_F(SpoolFolderTest, IgnoresHiddenFilesAndFolders) {
  write_whole(folder_ / ".partial", "x");
  std::filesystem::create_directory(folder_ / "folder");
  add("z");
  write_whole(folder_ / SpoolFolder::kEnd, "");
  SpoolFolder spool = open();
  EXPECT_EQ(next(spool), "z");
  EXPECT_EQ(next(spool), "");
}

TEST_F(SpoolFolderTest, ContinuesAfterTakenFiles) {
  for (const char* name : {"a", "b", "c"}) add(name);
  SpoolFolder spool = open({"a", "c", "archived before"});
  EXPECT_EQ(next(spool), "b");
  EXPECT_THAT(spool.taken(), ElementsAre("a", "b", "c"));
}

TEST_F(SpoolFolderTest, WaitsForFile) {
  SpoolFolder spool = open();
  std::string name;
  std::jthread reader([&] { name = next(spool); });
  EXPECT_TRUE(eventually([&] { return spool.is_waiting(); }));
  add("a");
  reader.join();
  EXPECT_EQ(name, "a");
}

TEST_F(SpoolFolderTest, StopsWhileWaiting) {
  SpoolFolder spool = open();
  std::optional<Result<std::optional<std::string>>> got;
  std::jthread reader([&](const std::stop_token& stop) { got = spool.next(stop); });
  EXPECT_TRUE(eventually([&] { return spool.is_waiting(); }));
  reader.request_stop();
  reader.join();
  EXPECT_EQ(got->status().code(), StatusCode::kCancelled);
}

TEST_F(SpoolFolderTest, ArchivesFileOnce) {
  add("a");
  SpoolFolder spool = open();
  EXPECT_EQ(next(spool), "a");
  for (int repeated = 0; repeated < 2; ++repeated) {
    const Status archived = SpoolFolder::archive(default_file_system(), folder_ / "a");
    EXPECT_TRUE(archived.ok()) << archived.to_string();
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done/a"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
  write_whole(folder_ / SpoolFolder::kEnd, "");
  EXPECT_EQ(next(spool), "");
  EXPECT_THAT(spool.taken(), IsEmpty());
}

TEST_F(SpoolFolderTest, ReportsMissingFolder) {
  EXPECT_EQ(SpoolFolder::open(folder_ / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::data::stream
