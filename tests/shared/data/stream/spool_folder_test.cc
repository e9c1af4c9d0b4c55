#include "shared/data/stream/spool_folder.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/stream/byte_input.h"
#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::stream {
namespace {

using test::write_whole;
using testing::eventually;
using ::testing::HasSubstr;

class SpoolFolderTest : public ::testing::Test {
 protected:
  // As a producer does: under a hidden name first.
  void add(const std::string& name) const {
    write_whole(folder_ / ("." + name), name);
    std::filesystem::rename(folder_ / ("." + name), folder_ / name);
  }
  // The list is always new, so that a file that was just added is found.
  std::unique_ptr<SpoolFolder> open(SpoolFolder::Taken taken = {}) const {
    return open_with({.max_age = std::chrono::milliseconds(0)}, std::move(taken));
  }
  std::unique_ptr<SpoolFolder> open_with(FolderListing listing,
                                         SpoolFolder::Taken taken = {}) const {
    auto opened = SpoolFolder::open(folder_.path(), std::move(taken), std::move(listing));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return *std::move(opened);
  }
  // The name of the next file; empty at the end.
  static std::string next(SpoolFolder& spool) {
    const auto file = spool.next({});
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file && *file ? std::filesystem::path((*file)->path).filename().string() : "";
  }
  static SpoolFolder::File take(SpoolFolder& spool) {
    const auto file = spool.next({});
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file && *file ? **file : SpoolFolder::File();
  }
  static Status archive(const SpoolFolder::File& file) {
    return SpoolFolder::archive(default_file_system(), file);
  }
  // Of "a", "aa", "b" and "c", those that are taken.
  static std::string taken_of(const SpoolFolder& spool) {
    std::string taken;
    for (const char* name : {"a", "aa", "b", "c"})
      if (spool.is_taken(hash_of_name(name))) taken += std::string(name) + " ";
    return taken;
  }
  // By another file, which is longer each time.
  void replace(const std::string& name) {
    write_whole(folder_ / ("." + name), std::string(++replaced_ * 100, 'x'));
    std::filesystem::rename(folder_ / ("." + name), folder_ / name);
  }
  void add_end() const { write_whole(folder_ / SpoolFolder::kEnd, ""); }

  const test::TemporaryDirectory folder_;
  size_t replaced_ = 0;
};

TEST_F(SpoolFolderTest, ReturnsFilesInOrderOfNamesUntilEnd) {
  for (const char* name : {"c", "a", "b"}) add(name);
  const auto spool = open();
  EXPECT_EQ(next(*spool), "a");
  EXPECT_EQ(next(*spool), "b");
  add("aa");  // late, and still the lowest
  EXPECT_EQ(next(*spool), "aa");
  EXPECT_EQ(next(*spool), "c");
  add_end();
  EXPECT_EQ(next(*spool), "");
  EXPECT_EQ(taken_of(*spool), "a aa b c ");
}

// Whether they are all there at first, or each appears when the others were taken.
TEST_F(SpoolFolderTest, OrderOfAscendingNamesDoesNotDependOnTime) {
  const std::vector<std::string> names{"1000-b", "1001-a", "1002", "1002-x", "1010"};
  for (size_t present = 0; present <= names.size(); ++present) {
    const test::TemporaryDirectory folder;
    const auto opened = SpoolFolder::open(folder.path(), {}, {.max_age = std::chrono::hours(24)});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    size_t added = 0;
    const auto add_next = [&] {
      write_whole(folder / ".partial", "x");
      std::filesystem::rename(folder / ".partial", folder / names[added++]);
    };
    for (size_t i = added; i < present; ++i) add_next();
    for (size_t taken = 0; taken < names.size(); ++taken) {
      if (added == taken) add_next();
      EXPECT_EQ(next(**opened), names[taken]) << present << " files at first";
    }
  }
}

TEST_F(SpoolFolderTest, IgnoresHiddenFilesAndFolders) {
  write_whole(folder_ / ".partial", "x");
  std::filesystem::create_directory(folder_ / "folder");
  add("z");
  add_end();
  const auto spool = open();
  EXPECT_EQ(next(*spool), "z");
  EXPECT_EQ(next(*spool), "");
}

TEST_F(SpoolFolderTest, ContinuesAfterTakenFiles) {
  for (const char* name : {"a", "b", "c"}) add(name);
  SpoolFolder::Taken taken{{hash_of_name("aa"), 7}};  // was archived before
  {
    const auto spool = open();
    for (const char* name : {"a", "b", "c"}) {
      const SpoolFolder::File file = take(*spool);
      EXPECT_EQ(file.path, folder_ / name);
      if (*name != 'b') taken.emplace(hash_of_name(file.path), file.identity);
    }
  }
  const auto spool = open(taken);
  EXPECT_EQ(next(*spool), "b");
  EXPECT_EQ(taken_of(*spool), "a b c ");
}

TEST_F(SpoolFolderTest, ReturnsIdentityOfShard) {
  add("a");
  const auto spool = open();
  const SpoolFolder::File file = take(*spool);
  const auto shard = open_shard(file.path);
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(file.identity, (*shard)->identity());
}

TEST_F(SpoolFolderTest, TakesNewFileWithNameOfTakenOne) {
  add("a");
  add("b");
  const auto spool = open();
  const SpoolFolder::File old = take(*spool);
  replace("a");
  EXPECT_EQ(next(*spool), "b");  // replaced files come last
  const SpoolFolder::File replaced = take(*spool);
  EXPECT_EQ(replaced.path, old.path);
  EXPECT_NE(replaced.identity, old.identity);
  // Archived and replaced between two lists of the folder.
  EXPECT_TRUE(archive(replaced).ok());
  replace("a");
  EXPECT_EQ(next(*spool), "a");
}

TEST_F(SpoolFolderTest, ListsFolderOnceForManyFiles) {
  for (int file = 0; file < 100; ++file) add(std::to_string(1000 + file));
  add_end();
  int lists = 0;
  const auto spool = open_with({.list =
                                    [&lists](const std::string& path) {
                                      ++lists;
                                      return list_directory(path);
                                    },
                                .max_age = std::chrono::hours(24)});
  for (int file = 0; file < 100; ++file) EXPECT_EQ(next(*spool), std::to_string(1000 + file));
  EXPECT_EQ(next(*spool), "");
  EXPECT_LE(lists, 4);  // open(), the files, and twice to find the end
}

// readdir() is no snapshot: "a" appeared behind its position, then ".end" before it.
TEST_F(SpoolFolderTest, FindsFileThatFirstListWithEndLacks) {
  add("a");
  add_end();
  int lists = 0;
  const auto spool =
      open_with({.list = [&lists](const std::string& path) -> Result<std::vector<std::string>> {
        if (++lists <= 2) return std::vector<std::string>{SpoolFolder::kEnd};
        return list_directory(path);
      }});
  EXPECT_EQ(next(*spool), "a");
  EXPECT_EQ(next(*spool), "");
}

// A file that cannot be examined must not be missed silently.
TEST_F(SpoolFolderTest, ReportsFileThatCannotBeExamined) {
  const auto spool = open_with({.list = [](const std::string&) {
    return Result<std::vector<std::string>>({SpoolFolder::kEnd, std::string(300, 'x')});
  }});
  EXPECT_THAT(spool->next({}).status().message(), HasSubstr("stat " + folder_.path() + "/xxx"));
}

TEST_F(SpoolFolderTest, WaitsForFile) {
  const auto spool = open();
  std::string name;
  std::jthread reader([&] { name = next(*spool); });
  EXPECT_TRUE(eventually([&] { return spool->is_waiting(); }));
  add("a");
  reader.join();
  EXPECT_EQ(name, "a");
}

TEST_F(SpoolFolderTest, StopsWhileWaiting) {
  const auto spool = open();
  std::optional<Result<std::optional<SpoolFolder::File>>> got;
  std::jthread reader([&](const std::stop_token& stop) { got = spool->next(stop); });
  EXPECT_TRUE(eventually([&] { return spool->is_waiting(); }));
  reader.request_stop();
  reader.join();
  EXPECT_EQ(got->status().code(), StatusCode::kCancelled);
}

TEST_F(SpoolFolderTest, ArchivesFileOnce) {
  add("a");
  const auto spool = open();
  const SpoolFolder::File file = take(*spool);
  for (int repeated = 0; repeated < 2; ++repeated) {
    const Status archived = archive(file);
    EXPECT_TRUE(archived.ok()) << archived.to_string();
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done/a"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
  add_end();
  EXPECT_EQ(next(*spool), "");
  EXPECT_EQ(taken_of(*spool), "");
}

TEST_F(SpoolFolderTest, ArchivesAllFilesThatStateNames) {
  for (const char* name : {"a", "b", "c"}) add(name);
  const auto spool = open();
  SpoolFolder::Taken taken{{hash_of_name("of another checkpoint"), 7}};
  for (int i = 0; i < 2; ++i) {
    const SpoolFolder::File file = take(*spool);
    taken.emplace(hash_of_name(file.path), file.identity);
  }
  std::filesystem::create_directory(folder_ / SpoolFolder::kDone);
  write_whole(folder_ / "done/a", "of the hour before");
  const Status archived = SpoolFolder::archive_all(default_file_system(), folder_.path(), taken);
  EXPECT_EQ(archived.code(), StatusCode::kAlreadyExists);  // and yet the other one is archived
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done/b"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "c"));
}

TEST_F(SpoolFolderTest, NeverReplacesArchivedFile) {
  std::filesystem::create_directory(folder_ / SpoolFolder::kDone);
  write_whole(folder_ / "done/a", "of the hour before");
  add("a");
  const auto spool = open();
  const Status archived = archive(take(*spool));
  EXPECT_EQ(archived.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(archived.message(), HasSubstr("/a: "));
  EXPECT_THAT(archived.message(), HasSubstr("done has a file of this name already"));
  EXPECT_EQ(std::filesystem::file_size(folder_ / "done/a"), 18u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a"));
}

TEST_F(SpoolFolderTest, LeavesNewFileWithNameOfTakenOne) {
  add("a");
  const auto spool = open();
  const SpoolFolder::File old = take(*spool);
  replace("a");
  EXPECT_TRUE(archive(old).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a"));
  EXPECT_EQ(next(*spool), "a");
}

TEST_F(SpoolFolderTest, ReportsMissingFolder) {
  EXPECT_EQ(SpoolFolder::open(folder_ / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::data::stream
