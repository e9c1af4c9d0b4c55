#include "tests/support/faulty_files.h"

#include <fcntl.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

using Extent = Fault::Extent;

Status write_file(FileSystem& files, const std::string& path, std::string_view text, bool sync) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(path, O_WRONLY | O_CREAT | O_TRUNC));
  STOKER_RETURN_IF_ERROR(files.write(fd.get(), std::as_bytes(std::span(text)), path));
  return sync ? files.sync(fd.get(), path) : Status();
}

class FaultyFilesTest : public ::testing::Test {
 protected:
  FaultyFilesTest() : root_(scratch_ / "root") {
    std::filesystem::create_directory(root_);
    write_whole(root_ + "/old", "old");
    files_.emplace(root_);
  }
  // Content of a file after a power loss following all operations; "-": it does not exist.
  std::string content_after(Survival survival, const std::string& name, uint64_t seed = 0) {
    const std::string disk = scratch_ / ("disk" + std::to_string(++num_disks_));
    files_->simulate_power_loss(files_->operations().size(), survival, seed, disk);
    const auto content = read_file(disk + "/" + name, 1 << 20);
    return content.ok() ? *content : "-";
  }

  TemporaryDirectory scratch_;
  const std::string root_;
  std::optional<FaultyFiles> files_;
  int num_disks_ = 0;
};

TEST_F(FaultyFilesTest, PreservesExistingFilesAfterPowerCut) {
  EXPECT_EQ(content_after(Survival::kNothing, "old"), "old");
}

TEST_F(FaultyFilesTest, LosesFileWithoutDirectorySync) {
  ASSERT_TRUE(write_file(*files_, root_ + "/new", "text", true).ok());
  EXPECT_EQ(content_after(Survival::kNothing, "new"), "-");
  EXPECT_EQ(content_after(Survival::kNamesOnly, "new"), "text");
  EXPECT_EQ(content_after(Survival::kEverything, "new"), "text");
  ASSERT_TRUE(files_->sync_directory(root_).ok());
  EXPECT_EQ(content_after(Survival::kNothing, "new"), "text");
}

TEST_F(FaultyFilesTest, LeavesEmptyFileWhenOnlyNameIsSynced) {
  ASSERT_TRUE(write_file(*files_, root_ + "/new", "text", false).ok());
  ASSERT_TRUE(files_->sync_directory(root_).ok());
  EXPECT_EQ(content_after(Survival::kNothing, "new"), "");
  EXPECT_EQ(content_after(Survival::kNamesOnly, "new"), "");
}

TEST_F(FaultyFilesTest, LosesRenameWithoutDirectorySync) {
  ASSERT_TRUE(write_file(*files_, root_ + "/new", "text", true).ok());
  ASSERT_TRUE(files_->rename(root_ + "/new", root_ + "/old").ok());
  EXPECT_EQ(content_after(Survival::kNothing, "old"), "old");
  EXPECT_EQ(content_after(Survival::kEverything, "old"), "text");
  ASSERT_TRUE(files_->sync_directory(root_).ok());
  EXPECT_EQ(content_after(Survival::kNothing, "old"), "text");
}

TEST_F(FaultyFilesTest, RestoresRemovedFileWithoutDirectorySync) {
  ASSERT_TRUE(files_->remove_tree(root_ + "/old").ok());
  EXPECT_EQ(content_after(Survival::kNothing, "old"), "old");
  EXPECT_EQ(content_after(Survival::kEverything, "old"), "-");
}

TEST_F(FaultyFilesTest, LosesBytesAfterFailedSyncEvenIfRetried) {
  auto fd = files_->open(root_ + "/new", O_WRONLY | O_CREAT);
  ASSERT_TRUE(fd.ok());
  ASSERT_TRUE(files_->write(fd->get(), std::as_bytes(std::span("text", 4)), "new").ok());
  files_->fail_at(3, {});
  EXPECT_EQ(files_->sync(fd->get(), "new").code(), StatusCode::kIoError);
  EXPECT_TRUE(files_->sync(fd->get(), "new").ok());  // the kernel reports success
  ASSERT_TRUE(files_->sync_directory(root_).ok());
  EXPECT_EQ(content_after(Survival::kNothing, "new"), "");
}

TEST_F(FaultyFilesTest, ProducesEveryMixtureOfSurvivingFiles) {
  ASSERT_TRUE(write_file(*files_, root_ + "/a", "text", false).ok());
  ASSERT_TRUE(write_file(*files_, root_ + "/b", "text", false).ok());
  std::map<std::string, int> outcomes;
  for (uint64_t seed = 0; seed < 100; ++seed)
    ++outcomes[content_after(Survival::kSome, "a", seed) + "|" +
               content_after(Survival::kSome, "b", seed)];
  EXPECT_TRUE(outcomes.contains("-|text"));
  EXPECT_TRUE(outcomes.contains("text|-"));
  EXPECT_TRUE(outcomes.contains("-|-"));
  EXPECT_TRUE(outcomes.contains("text|text"));
  EXPECT_TRUE(outcomes.contains("|text"));
  EXPECT_TRUE(outcomes.contains(std::string(4, '\0') + "|text"));
}

TEST_F(FaultyFilesTest, FailsOnlyNthOperation) {
  files_->fail_at(2, {ENOSPC, Extent::kHalf});
  EXPECT_EQ(write_file(*files_, root_ + "/new", "text", true).code(), StatusCode::kNoSpace);
  EXPECT_EQ(*read_file(root_ + "/new", 100), "te");
  EXPECT_EQ(content_after(Survival::kEverything, "new"), "te");
  EXPECT_TRUE(write_file(*files_, root_ + "/new", "text", true).ok());
}

TEST_F(FaultyFilesTest, WritesNothingAfterKill) {
  ASSERT_TRUE(files_->make_directory(root_ + "/tree").ok());
  ASSERT_TRUE(write_file(*files_, root_ + "/tree/a", "a", true).ok());
  ASSERT_TRUE(write_file(*files_, root_ + "/tree/b", "b", true).ok());
  files_->kill_at(files_->operations().size() + 1, Extent::kHalf);
  EXPECT_FALSE(files_->remove_tree(root_ + "/tree").ok());
  EXPECT_FALSE(files_->remove_tree(root_ + "/tree").ok());
  EXPECT_FALSE(write_file(*files_, root_ + "/new", "text", true).ok());
  EXPECT_EQ(*list_directory(root_), (std::vector<std::string>{"old", "tree"}));
  EXPECT_EQ(*list_directory(root_ + "/tree"), (std::vector<std::string>{"b"}));
}

TEST_F(FaultyFilesTest, ReportsErrorAfterOperationTookEffect) {
  files_->fail_at(1, {EIO, Extent::kAll});
  EXPECT_EQ(files_->rename(root_ + "/old", root_ + "/new").code(), StatusCode::kIoError);
  EXPECT_EQ(*list_directory(root_), (std::vector<std::string>{"new"}));
  EXPECT_EQ(content_after(Survival::kEverything, "new"), "old");
}

}  // namespace
}  // namespace stoker::test
