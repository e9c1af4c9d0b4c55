#include "daemon/app/resume_checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

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
  std::string path_of(uint64_t step) const {
    return run_ + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(step);
  }
  // Waits on a fake clock: each pause takes a second and then calls `on_pause_`.
  Result<std::optional<checkpoint::VerifiedCheckpoint>> find(const std::string& resume) {
    LockWait wait{.pause = {}, .clock = clock_};
    wait.pause = [this](const std::string& waiting_for) {
      waits_.push_back(waiting_for);
      clock_.advance(1s);
      return on_pause_ ? on_pause_() : Status();
    };
    return find_resume_checkpoint(store(), resume, wait);
  }
  // A lock of another program, held until the returned descriptor is closed.
  UniqueFd lock(uint64_t step, const std::string& file, int kind) const {
    UniqueFd fd(::open((path_of(step) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::flock(fd.get(), kind | LOCK_NB), 0) << file;
    return fd;
  }

  std::string run_;
  ManualClock clock_;
  std::function<Status()> on_pause_;
  std::vector<std::string> waits_;
};

// Locks of other programs, as in docs/operations.md#locked-checkpoints.
struct LockCase {
  int kind;
  const char* file;
  std::vector<uint64_t> locked_steps;
};
class LockedCheckpointTest : public ResumeCheckpointTest,
                             public testing::WithParamInterface<LockCase> {
 protected:
  void SetUp() override {
    ResumeCheckpointTest::SetUp();
    for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
    for (const uint64_t step : GetParam().locked_steps)
      locks_.push_back(lock(step, GetParam().file, GetParam().kind));
  }
  bool is_exclusive() const { return GetParam().kind == LOCK_EX; }

  std::vector<UniqueFd> locks_;
};

TEST_P(LockedCheckpointTest, UsesNewestCheckpointOrReportsLockAfterTimeout) {
  const auto start = find("");
  if (!is_exclusive()) {
    ASSERT_TRUE(start.ok() && *start) << start.status().to_string();
    EXPECT_EQ((*start)->manifest().step, 30u);
    EXPECT_TRUE(waits_.empty());
    return;
  }
  EXPECT_EQ(start.status().code(), StatusCode::kBusy);
  EXPECT_THAT(start.status().message(),
              AllOf(HasSubstr(path_of(30) + "/" + GetParam().file + ": locked exclusively by pid " +
                              std::to_string(::getpid()) + " ("),
                    HasSubstr(" for 30 s; ")));
  ASSERT_EQ(waits_.size(), 30u);
  EXPECT_THAT(waits_.front(), HasSubstr(path_of(30)));
  EXPECT_EQ(store().list()->size(), 3u);
}

TEST_P(LockedCheckpointTest, UsesNewestCheckpointAfterLocksAreReleased) {
  on_pause_ = [this] {
    if (waits_.size() == 3) locks_.clear();
    return Status();
  };
  const auto start = find("");
  ASSERT_TRUE(start.ok() && *start) << start.status().to_string();
  EXPECT_EQ((*start)->manifest().step, 30u);
  EXPECT_EQ(waits_.size(), is_exclusive() ? 3u : 0u);
}

TEST_P(LockedCheckpointTest, EndsWaitWithErrorOfPause) {
  on_pause_ = [] { return Status(StatusCode::kCancelled, "stopped"); };
  const auto start = find("");
  EXPECT_EQ(start.status().code(), is_exclusive() ? StatusCode::kCancelled : StatusCode::kOk);
  EXPECT_LE(waits_.size(), 1u);
}

std::vector<LockCase> all_lock_cases() {
  std::vector<LockCase> cases;
  for (const int kind : {LOCK_SH, LOCK_EX})
    for (const char* const file : {"SHA256SUMS", "manifest.json", "model.safetensors"})
      for (const std::vector<uint64_t>& steps : {std::vector<uint64_t>{30}, {10, 20, 30}})
        cases.push_back({kind, file, steps});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Matrix, LockedCheckpointTest, testing::ValuesIn(all_lock_cases()),
                         [](const auto& tested) {
                           const std::string file = tested.param.file;
                           return (tested.param.kind == LOCK_EX ? "exclusive_" : "shared_") +
                                  file.substr(0, file.find('.')) +
                                  (tested.param.locked_steps.size() == 1 ? "_newest" : "_all");
                         });

// The checkpoints that a lock makes unusable are not among those that are skipped as corrupt.
TEST_F(ResumeCheckpointTest, WaitsForLockedCheckpointBehindCorruptOne) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  std::ofstream(path_of(30) + "/model.safetensors", std::ios::app) << "x";
  const UniqueFd held = lock(20, "SHA256SUMS", LOCK_EX);
  const auto start = find("");
  EXPECT_EQ(start.status().code(), StatusCode::kBusy);
  EXPECT_THAT(start.status().message(), HasSubstr(path_of(20)));
}

TEST_F(ResumeCheckpointTest, WaitsForLockedCheckpointOnRequest) {
  make_checkpoint(10);
  make_checkpoint(20);
  const UniqueFd other = lock(20, "SHA256SUMS", LOCK_EX);
  EXPECT_EQ((*find(path_of(10)))->manifest().step, 10u) << "a lock on another checkpoint";
  const UniqueFd held = lock(10, "SHA256SUMS", LOCK_EX);
  EXPECT_EQ(find(path_of(10)).status().code(), StatusCode::kBusy);
  EXPECT_EQ(waits_.size(), 30u);
}

TEST_F(ResumeCheckpointTest, FindsNothingInEmptyRun) {
  const auto start = find("");
  ASSERT_TRUE(start.ok());
  EXPECT_FALSE(start->has_value());
}

TEST_F(ResumeCheckpointTest, FindsNewestValidOrRequestedCheckpoint) {
  make_checkpoint(10);
  make_checkpoint(20);
  EXPECT_EQ((*find(""))->manifest().step, 20u);
  EXPECT_EQ((*find(run_ + "/checkpoints/step-000000010"))->manifest().step, 10u);
  EXPECT_FALSE(find(run_ + "/checkpoints/step-000000030").ok());
}

TEST_F(ResumeCheckpointTest, SuggestsFreshWhenAllCheckpointsAreCorrupt) {
  make_checkpoint(10);
  std::ofstream(run_ + "/checkpoints/step-000000010/model.safetensors", std::ios::app) << "x";
  const auto start = find("");
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
  const auto start = find("");
  EXPECT_EQ(start.status().code(), StatusCode::kMismatch);
  EXPECT_NE(start.status().message().find("format 3; this version reads 2"), std::string::npos);
}

TEST_F(ResumeCheckpointTest, FallsBackToOlderCheckpointsInOrder) {
  for (const uint64_t step : {10u, 20u, 30u, 40u}) make_checkpoint(step);
  for (const char* const step : {"20", "30", "40"})
    std::ofstream(run_ + "/checkpoints/step-0000000" + step + "/model.safetensors", std::ios::app)
        << "x";
  EXPECT_EQ((*find(""))->manifest().step, 10u);
}

}  // namespace
}  // namespace stoker::app
