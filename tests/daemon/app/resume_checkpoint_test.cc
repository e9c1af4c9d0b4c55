#include "daemon/app/resume_checkpoint.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "shared/base/hash.h"

namespace stoker::app {
namespace {

namespace fs = std::filesystem;

class ResumeCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-start-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
    fs::create_directories(run_ + "/checkpoints");
  }
  void TearDown() override { fs::remove_all(run_); }
  void make_checkpoint(uint64_t step) {
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    const float weight = 1.0f;
    content.model = {{{"w", DType::kF32, {1}}, std::as_bytes(std::span(&weight, 1))}};
    const auto committed = store().commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  checkpoint::CheckpointStore store() {
    return checkpoint::CheckpointStore(run_ + "/checkpoints", default_file_system());
  }

  std::string run_;
};

TEST_F(ResumeCheckpointTest, FindsNothingInEmptyRun) {
  const auto start = find_resume_checkpoint(store(), "");
  ASSERT_TRUE(start.ok());
  EXPECT_FALSE(start->has_value());
}

TEST_F(ResumeCheckpointTest, FindsNewestValidOrRequestedCheckpoint) {
  make_checkpoint(10);
  make_checkpoint(20);
  EXPECT_EQ((*find_resume_checkpoint(store(), ""))->manifest().step, 20u);
  EXPECT_EQ(
      (*find_resume_checkpoint(store(), run_ + "/checkpoints/step-000000010"))->manifest().step,
      10u);
  EXPECT_FALSE(find_resume_checkpoint(store(), run_ + "/checkpoints/step-000000030").ok());
}

TEST_F(ResumeCheckpointTest, SuggestsFreshWhenAllCheckpointsAreCorrupt) {
  make_checkpoint(10);
  std::ofstream(run_ + "/checkpoints/step-000000010/model.safetensors", std::ios::app) << "x";
  const auto start = find_resume_checkpoint(store(), "");
  EXPECT_EQ(start.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(start.status().message().find("--fresh"), std::string::npos);
}

TEST_F(ResumeCheckpointTest, ArchivesLaterCheckpointsWithoutDeleting) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  auto checkpoints = store();
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), checkpoints, 10).ok());
  ASSERT_EQ(checkpoints.list()->size(), 1u);
  make_checkpoint(20);
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), checkpoints, 10).ok());
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/archived.1.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/archived.2.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/archived.1.step-000000030/model.safetensors"));
}

TEST_F(ResumeCheckpointTest, ArchivesExistingRunOnFresh) {
  fs::remove_all(run_ + "/checkpoints");
  ASSERT_TRUE(archive_run(default_file_system(), run_).ok());
  EXPECT_FALSE(fs::exists(run_ + "/archive-1"));
  fs::create_directories(run_ + "/checkpoints");
  make_checkpoint(10);
  std::ofstream(run_ + "/config.yaml") << "x";
  ASSERT_TRUE(archive_run(default_file_system(), run_).ok());
  EXPECT_TRUE(fs::exists(run_ + "/archive-1/checkpoints/step-000000010/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/archive-1/config.yaml"));
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints"));
}

// Older checkpoints can be hours behind, so the user must decide.
TEST_F(ResumeCheckpointTest, RejectsNewestCheckpointOfNewerFormat) {
  make_checkpoint(10);
  make_checkpoint(20);
  const std::string newest = run_ + "/checkpoints/step-000000020/";
  std::string manifest = *read_file(newest + "manifest.json", 1 << 20);
  const std::string before = sha256_hex(manifest);
  manifest.replace(manifest.find("\"format\":2"), 10, "\"format\":3");
  std::string sums = *read_file(newest + "SHA256SUMS", 1 << 20);
  sums.replace(sums.find(before), before.size(), sha256_hex(manifest));
  std::ofstream(newest + "manifest.json") << manifest;
  std::ofstream(newest + "SHA256SUMS") << sums;
  const auto start = find_resume_checkpoint(store(), "");
  EXPECT_EQ(start.status().code(), StatusCode::kMismatch);
  EXPECT_NE(start.status().message().find("format 3; this version reads 2"), std::string::npos);
}

TEST_F(ResumeCheckpointTest, FallsBackToOlderCheckpointsInOrder) {
  for (const uint64_t step : {10u, 20u, 30u, 40u}) make_checkpoint(step);
  for (const char* const step : {"20", "30", "40"})
    std::ofstream(run_ + "/checkpoints/step-0000000" + step + "/model.safetensors", std::ios::app)
        << "x";
  EXPECT_EQ((*find_resume_checkpoint(store(), ""))->manifest().step, 10u);
}

}  // namespace
}  // namespace stoker::app
