#include "daemon/app/resume_checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/run/last_checkpoint.h"
#include "shared/run/lineage.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ResumeCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(run_ / "checkpoints"); }
  void make_checkpoint(uint64_t step) {
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    const float weight = 1.0f;
    content.model = {{{"w", DType::kF32, {1}}, std::as_bytes(std::span(&weight, 1))}};
    const auto committed = store().commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  checkpoint::CheckpointStore store() {
    return checkpoint::CheckpointStore(run_ / "checkpoints", default_file_system());
  }
  std::string path_of(uint64_t step) const {
    return run_ / "checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(step);
  }
  // Waits on a fake clock: each pause takes a second and then calls `on_pause_`.
  Result<std::optional<checkpoint::VerifiedCheckpoint>> find(const std::string& resume) {
    LockWait wait{.pause = {}, .clock = clock_};
    wait.pause = [this](const std::string& waiting_for) {
      waits_.push_back(waiting_for);
      clock_.advance(1s);
      return on_pause_ ? on_pause_() : Status();
    };
    return find_resume_checkpoint(store(), run::RunLayout(run_.path()), resume, wait);
  }
  run::RunLayout layout() const { return run::RunLayout(run_.path()); }
  // As the checkpoint writer after a commit.
  void record(uint64_t step) {
    const auto saved = checkpoint::CheckpointStore::open_verified(path_of(step));
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    record_resumed_checkpoint(default_file_system(), store(), layout(), *saved);
    ASSERT_EQ(recorded_step(), step);
  }
  uint64_t recorded_step() const {  // 0: none
    const auto last = run::read_last_checkpoint(layout().last_checkpoint_file());
    EXPECT_TRUE(last.ok()) << last.status().to_string();
    return last.ok() && *last ? (*last)->step : 0;
  }
  // The warnings of find_resume_checkpoint("") about the record, one line each.
  std::vector<std::string> warnings_of_start() {
    EXPECT_TRUE(init_log({.file = run_ / "log", .console = false}).ok());
    const auto start = find("");
    EXPECT_TRUE(start.ok()) << start.status().to_string();
    flush_log();
    EXPECT_TRUE(init_log({}).ok());
    std::vector<std::string> warnings;
    std::ifstream log(run_ / "log");
    for (std::string line; std::getline(log, line);)
      if (line.find(" last checkpoint ") != std::string::npos) warnings.push_back(line);
    fs::remove(run_ / "log");
    return warnings;
  }
  // A lock of another program, held until the returned descriptor is closed.
  UniqueFd lock(uint64_t step, const std::string& file, int kind) const {
    UniqueFd fd(::open((path_of(step) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::flock(fd.get(), kind | LOCK_NB), 0) << file;
    return fd;
  }

  const test::TemporaryDirectory run_;
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
  EXPECT_EQ((*find(run_ / "checkpoints/step-000000010"))->manifest().step, 10u);
  EXPECT_FALSE(find(run_ / "checkpoints/step-000000030").ok());
}

TEST_F(ResumeCheckpointTest, SuggestsFreshWhenAllCheckpointsAreCorrupt) {
  make_checkpoint(10);
  std::ofstream(run_ / "checkpoints/step-000000010/model.safetensors", std::ios::app) << "x";
  const auto start = find("");
  EXPECT_EQ(start.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(start.status().message().find("--fresh"), std::string::npos);
}

TEST_F(ResumeCheckpointTest, ArchivesLaterCheckpointsWithoutDeleting) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  auto checkpoints = store();
  ASSERT_TRUE(
      archive_later_checkpoints(default_file_system(), checkpoints, run::RunLayout(run_.path()), 10)
          .ok());
  ASSERT_EQ(checkpoints.list()->size(), 1u);
  make_checkpoint(20);
  ASSERT_TRUE(
      archive_later_checkpoints(default_file_system(), checkpoints, run::RunLayout(run_.path()), 10)
          .ok());
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/archived.1.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/archived.2.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/archived.1.step-000000030/model.safetensors"));
}

TEST_F(ResumeCheckpointTest, ArchivesExistingRunOnFresh) {
  fs::remove_all(run_ / "checkpoints");
  ASSERT_TRUE(archive_run(default_file_system(), run_.path()).ok());
  EXPECT_FALSE(fs::exists(run_ / "archive-1"));
  fs::create_directories(run_ / "checkpoints");
  make_checkpoint(10);
  std::ofstream(run_ / "config.yaml") << "x";
  record(10);
  for (const char* const rank : {"1", "2", "3"}) fs::create_directories(run_ / "ranks/" + rank);
  std::ofstream(run_ / "ranks/2/sample_errors.jsonl") << "x";
  std::ofstream(run_ / "data_schema.json") << "x";
  ASSERT_TRUE(archive_run(default_file_system(), run_.path()).ok());
  EXPECT_TRUE(fs::exists(run_ / "archive-1/ranks/2/sample_errors.jsonl"));
  EXPECT_FALSE(fs::exists(run_ / "ranks/2/sample_errors.jsonl"));
  EXPECT_TRUE(fs::exists(run_ / "ranks/3"));
  EXPECT_TRUE(fs::exists(run_ / "archive-1/checkpoints/step-000000010/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ / "archive-1/config.yaml"));
  EXPECT_TRUE(fs::exists(run_ / "archive-1/data_schema.json"));
  EXPECT_FALSE(fs::exists(run_ / "data_schema.json"));
  EXPECT_TRUE(fs::exists(run_ / "archive-1/last_checkpoint.json"));
  EXPECT_EQ(recorded_step(), 0u);
  EXPECT_FALSE(fs::exists(run_ / "checkpoints"));
}

TEST_F(ResumeCheckpointTest, ChangesNothingOnFreshIfCheckpointsIsMountPoint) {
  make_checkpoint(10);
  record(10);
  test::FaultyFiles files(run_.path());
  files.fail_at(2, {.error = EBUSY});
  const Status archived = archive_run(files, run_.path());
  EXPECT_EQ(archived.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(archived.message(), HasSubstr(run_ / "checkpoints: is a mount point; "));
  EXPECT_EQ(recorded_step(), 10u);
  EXPECT_FALSE(fs::exists(run_ / "archive-1"));
}

TEST_F(ResumeCheckpointTest, ArchivesRestOnFreshAfterInterruption) {
  make_checkpoint(10);
  record(10);
  test::FaultyFiles files(run_.path());
  files.kill_at(3);
  EXPECT_EQ(archive_run(files, run_.path()).code(), StatusCode::kIoError);
  EXPECT_EQ(find("").status().code(), StatusCode::kCorrupt);
  ASSERT_TRUE(archive_run(default_file_system(), run_.path()).ok());
  EXPECT_FALSE((*find("")).has_value());
}

TEST_F(ResumeCheckpointTest, RejectsEmptyOrMissingDirectoryAfterSave) {
  make_checkpoint(10);
  make_checkpoint(20);
  record(20);
  EXPECT_TRUE(check_checkpoints_exist(store(), layout()).ok());
  fs::rename(run_ / "checkpoints", run_ / "moved");
  for (const char* const what : {": does not exist", ": has no checkpoint"}) {
    const auto start = find("");
    EXPECT_EQ(start.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(start.status().message(), AllOf(HasSubstr(run_ / "checkpoints" + what),
                                                HasSubstr("saved step 20"), HasSubstr("--fresh")));
    EXPECT_EQ(check_checkpoints_exist(store(), layout()).code(), StatusCode::kCorrupt);
    fs::create_directory(run_ / "checkpoints");
  }
  EXPECT_EQ((*find(run_ / "moved/step-000000010"))->manifest().step, 10u) << "on request";
  std::ofstream(layout().last_checkpoint_file()) << "{";
  EXPECT_THAT(find("").status().message(), HasSubstr("last_checkpoint.json: not JSON"));
  ASSERT_TRUE(archive_run(default_file_system(), run_.path()).ok());
  EXPECT_FALSE((*find("")).has_value()) << "--fresh starts over";
}

TEST_F(ResumeCheckpointTest, WarnsOnceWhenLastCheckpointIsMissing) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  EXPECT_TRUE(warnings_of_start().empty()) << "a run of an earlier release";
  record(20);
  EXPECT_TRUE(warnings_of_start().empty()) << "a crash between commit and record";
  record(30);
  EXPECT_TRUE(warnings_of_start().empty());
  std::ofstream(path_of(30) + "/model.safetensors", std::ios::app) << "x";
  EXPECT_TRUE(warnings_of_start().empty()) << "it is logged as rejected";
  fs::remove_all(path_of(30));
  const auto warnings = warnings_of_start();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("last checkpoint missing step=20 last_saved_step=30 hint="));
  record(20);  // what a start does
  EXPECT_TRUE(warnings_of_start().empty());
}

TEST_F(ResumeCheckpointTest, WarnsWhenLastCheckpointIsOfAnotherRun) {
  make_checkpoint(10);
  record(10);
  ASSERT_TRUE(run::write_last_checkpoint(default_file_system(), layout().last_checkpoint_file(),
                                         {.step = 10, .manifest_sha256 = std::string(64, 'a')})
                  .ok());
  const auto warnings = warnings_of_start();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("last checkpoint replaced step=10 "));
  std::ofstream(layout().last_checkpoint_file()) << "{";
  EXPECT_THAT(warnings_of_start(), ElementsAre(HasSubstr("last checkpoint unknown step=10 ")));
}

TEST_F(ResumeCheckpointTest, CompletesLostLineage) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  const auto manifest_of = [this](uint64_t step) {
    return checkpoint::CheckpointStore::open_verified(path_of(step))->manifest_sha256();
  };
  const std::string first = manifest_of(10), second = manifest_of(20), third = manifest_of(30);
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), store(), layout(), 20).ok());
  record(20);
  const auto expect_branch = [&] {
    const auto lineage = run::read_lineage(layout().lineage_file());
    ASSERT_TRUE(lineage.ok());
    EXPECT_TRUE(lineage->contains(10, first));
    EXPECT_TRUE(lineage->contains(20, second));
    EXPECT_FALSE(lineage->contains(30, third));
  };
  expect_branch();
  fs::remove(layout().lineage_file());
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), store(), layout(), 20).ok());
  record(20);
  expect_branch();
}

TEST_F(ResumeCheckpointTest, ForgetsLastCheckpointWhenItIsArchived) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  record(30);
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), store(), layout(), 30).ok());
  EXPECT_EQ(recorded_step(), 30u) << "nothing is archived";
  ASSERT_TRUE(archive_later_checkpoints(default_file_system(), store(), layout(), 10).ok());
  EXPECT_TRUE(warnings_of_start().empty());
  EXPECT_EQ(recorded_step(), 0u);
}

TEST_F(ResumeCheckpointTest, SyncsRemovalOfRecordBeforeArchiving) {
  for (const uint64_t step : {10u, 20u}) make_checkpoint(step);
  record(20);
  test::FaultyFiles files(run_.path());
  ASSERT_TRUE(archive_later_checkpoints(files, store(), layout(), 10).ok());
  std::vector<std::string> operations;
  for (const test::Operation& operation : files.operations())
    operations.push_back(to_string(operation));
  EXPECT_THAT(operations,
              ElementsAre(HasSubstr("last_checkpoint.json"), "sync directory " + run_.path(),
                          HasSubstr("rename "), HasSubstr("sync directory ")));
}

TEST_F(ResumeCheckpointTest, RecordsOnlyCheckpointsOfThisRun) {
  make_checkpoint(10);
  record(10);
  fs::copy(path_of(10), run_ / "step-000000010", fs::copy_options::recursive);
  fs::remove(layout().last_checkpoint_file());
  const auto other = checkpoint::CheckpointStore::open_verified(run_ / "step-000000010");
  ASSERT_TRUE(other.ok());
  record_resumed_checkpoint(default_file_system(), store(), layout(), *other);
  EXPECT_EQ(recorded_step(), 0u);
}

// Older checkpoints can be hours behind, so the user must decide.
TEST_F(ResumeCheckpointTest, RejectsNewestCheckpointOfNewerFormat) {
  make_checkpoint(10);
  make_checkpoint(20);
  const std::string newest = run_ / "checkpoints/step-000000020/";
  std::string manifest = *read_file(newest + "manifest.json", 1 << 20);
  const std::string before = sha256_hex(manifest);
  manifest.replace(manifest.find("\"format\":2"), 10, "\"format\":4");
  std::string sums = *read_file(newest + "SHA256SUMS", 1 << 20);
  sums.replace(sums.find(before), before.size(), sha256_hex(manifest));
  std::ofstream(newest + "manifest.json") << manifest;
  std::ofstream(newest + "SHA256SUMS") << sums;
  const auto start = find("");
  EXPECT_EQ(start.status().code(), StatusCode::kMismatch);
  EXPECT_NE(start.status().message().find("format 4; this version reads up to 3"),
            std::string::npos);
}

TEST_F(ResumeCheckpointTest, FallsBackToOlderCheckpointsInOrder) {
  for (const uint64_t step : {10u, 20u, 30u, 40u}) make_checkpoint(step);
  for (const char* const step : {"20", "30", "40"})
    std::ofstream(run_ / "checkpoints/step-0000000" + step + "/model.safetensors", std::ios::app)
        << "x";
  EXPECT_EQ((*find(""))->manifest().step, 10u);
}

}  // namespace
}  // namespace stoker::app
