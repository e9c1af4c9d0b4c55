#include "daemon/writer/checkpoint_writer.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/coordinator.h"
#include "shared/run/last_checkpoint.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::writer {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointWriterTest : public testing::Test {
 protected:
  ~CheckpointWriterTest() override {
    coordinator_.request_stop();
    EXPECT_TRUE(coordinator_.join(60s).ok());
  }

  // `tries`: number of commit attempts.
  void start(size_t tries = 1) {
    make(tries);
    run();
  }
  void make(size_t tries = 1) {
    WriterOptions settings;
    settings.delete_expired = [this](bool is_disk_full) {
      was_disk_full_ = is_disk_full;
      std::vector<uint64_t> old = steps();
      old.resize(old.size() - std::min<size_t>(old.size(), 2));
      EXPECT_TRUE(store_.delete_checkpoints(old).ok());
    };
    settings.before_commit = [this] {
      ++before_commits_;
      return may_commit_;
    };
    settings.after_commit = [this](const checkpoint::Manifest& committed) {
      record_last_checkpoint(files_, layout_, committed);
    };
    settings.delays.assign(tries - 1, 1ms);
    writer_ = std::make_unique<CheckpointWriter>(store_, settings);
  }
  void run() {
    coordinator_.start("checkpoints", [this](std::stop_token stop) { return writer_->run(stop); });
  }

  // Empty if a checkpoint is in progress.
  std::optional<std::future<Result<checkpoint::Manifest>>> submit(uint64_t step) {
    Snapshot* const snapshot = writer_->try_begin();
    if (snapshot == nullptr) return std::nullopt;
    snapshot->begin();
    std::ranges::fill(snapshot->add(Part::kModel, {"w", DType::kF32, {64}}),
                      static_cast<std::byte>(step));
    snapshot->manifest().step = step;
    snapshot->manifest().live_settings = "{}";
    auto promise = std::make_shared<std::promise<Result<checkpoint::Manifest>>>();
    writer_->submit([promise](auto result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  Result<checkpoint::Manifest> save(uint64_t step) {
    while (true) {
      if (auto done = submit(step)) return done->get();
      (void)writer_->wait_idle(100ms);
    }
  }
  std::vector<uint64_t> steps() const {
    std::vector<uint64_t> found;
    for (const auto& entry : *store_.list()) found.push_back(entry.step);
    return found;
  }

  test::TemporaryDirectory root_;
  test::FaultyFiles files_{root_.path()};
  const run::RunLayout layout_{root_.path()};
  checkpoint::CheckpointStore store_{layout_.checkpoints_dir(), files_};
  std::unique_ptr<CheckpointWriter> writer_;
  std::atomic<int> before_commits_{0};
  Status may_commit_;
  std::atomic<bool> was_disk_full_{false};
  Coordinator coordinator_;
};

TEST_F(CheckpointWriterTest, WritesSnapshotContents) {
  start();
  const auto saved = save(7);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const auto opened =
      checkpoint::CheckpointStore::open_verified(store_.directory() + "/step-000000007");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto model = opened->open_tensors("model.safetensors");
  ASSERT_TRUE(model.ok());
  std::vector<std::byte> bytes(256);
  ASSERT_TRUE((*model)->read("w", bytes).ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(256, std::byte{7}));
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_EQ(writer_->stats().last_step, 7u);
  EXPECT_EQ(writer_->stats().saved, 1u);
  EXPECT_EQ(writer_->stats().last_bytes, 256u);
  EXPECT_EQ(before_commits_, 1);
}

TEST_F(CheckpointWriterTest, ReportsBytesOfEachAttempt) {
  make(/*tries=*/2);
  Snapshot* const snapshot = writer_->try_begin();
  ASSERT_NE(snapshot, nullptr);
  snapshot->begin();
  (void)snapshot->add(Part::kModel, {"w", DType::kF32, {1000}});
  (void)snapshot->add(Part::kModel, {"v", DType::kF32, {1000}});
  snapshot->manifest().step = 7;
  snapshot->manifest().live_settings = "{}";
  std::vector<uint64_t> written;
  std::promise<Status> saved;
  writer_->submit([&](const auto& result) { saved.set_value(result.status()); },
                  [&](uint64_t bytes, uint64_t total) {
                    EXPECT_EQ(total, 8000u);
                    written.push_back(bytes);
                  });
  run();
  const Status status = saved.get_future().get();
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_FALSE(written.empty());
  EXPECT_TRUE(std::ranges::is_sorted(written));
  EXPECT_GE(written.back(), 8000u) << "with the headers of the files";
}

// A chief that has been replaced by that of a new group.
TEST_F(CheckpointWriterTest, CommitsNothingThatMayNotBeCommitted) {
  may_commit_ = Status(StatusCode::kPeerLost, "another group of this run has started");
  start();
  EXPECT_EQ(save(7).status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(steps(), testing::IsEmpty());
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_TRUE(writer_->is_degraded());
}

TEST_F(CheckpointWriterTest, ReturnsNoSnapshotWhileWriteIsInFlight) {
  make();  // the writer thread is not running yet
  auto first = submit(1);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(writer_->stats().in_flight);
  EXPECT_FALSE(submit(2).has_value());
  EXPECT_FALSE(writer_->wait_idle(1ms));
  writer_->increment_skipped();
  EXPECT_EQ(writer_->stats().skipped, 1u);
  run();
  EXPECT_TRUE(first->get().ok());
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_TRUE(save(3).ok());
  EXPECT_THAT(steps(), ElementsAre(1, 3));
}

TEST_F(CheckpointWriterTest, DeletesCheckpointsBeyondRetention) {
  start();
  for (uint64_t step = 1; step <= 4; ++step) ASSERT_TRUE(save(step).ok());
  EXPECT_THAT(steps(), ElementsAre(3, 4));
}

TEST_F(CheckpointWriterTest, ReportsDegradedAfterAllAttemptsFailUntilNextSuccess) {
  start(3);
  ASSERT_TRUE(save(1).ok());
  files_.set_free_bytes(0);
  const auto failed = save(2);
  EXPECT_EQ(failed.status().code(), StatusCode::kNoSpace);
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_TRUE(writer_->stats().degraded);
  EXPECT_EQ(writer_->stats().failures, 3u);
  EXPECT_THAT(writer_->stats().last_error, HasSubstr("0 MiB are free"));
  EXPECT_EQ(writer_->stats().last_step, 1u);
  EXPECT_THAT(steps(), ElementsAre(1));
  files_.set_free_bytes(uint64_t{1} << 40);
  EXPECT_TRUE(save(3).ok());
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_FALSE(writer_->stats().degraded);
  EXPECT_THAT(steps(), ElementsAre(1, 3));
}

TEST_F(CheckpointWriterTest, FreesDiskSpaceBeforeFirstWriteOnFullDisk) {
  start();
  ASSERT_TRUE(save(1).ok());
  EXPECT_FALSE(was_disk_full_);
  files_.set_free_bytes(0);
  const size_t before = files_.operations().size();
  EXPECT_EQ(save(2).status().code(), StatusCode::kNoSpace);
  EXPECT_TRUE(was_disk_full_) << "temporarily retained checkpoints were not deleted";
  for (size_t i = before; i < files_.operations().size(); ++i)
    EXPECT_NE(files_.operations()[i].kind, test::Operation::Kind::kWrite);
}

TEST_F(CheckpointWriterTest, RecordsLastCheckpointAfterCommitAndBeforeRetention) {
  start();
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE(save(step).ok());
  const auto last = run::read_last_checkpoint(layout_.last_checkpoint_file());
  ASSERT_TRUE(last.ok() && *last);
  EXPECT_EQ((*last)->step, 3u);
  EXPECT_EQ((*last)->manifest_sha256,
            checkpoint::CheckpointStore::open_verified(store_.directory() + "/step-000000003")
                ->manifest_sha256());
  std::vector<std::string> order;
  for (const test::Operation& operation : files_.operations())
    if (operation.kind == test::Operation::Kind::kRename)
      order.push_back(std::filesystem::path(operation.to).filename());
  EXPECT_THAT(order, ElementsAre("step-000000001", "last_checkpoint.json", "step-000000002",
                                 "last_checkpoint.json", "step-000000003", "last_checkpoint.json",
                                 ".trash-step-000000001"));
}

// A full or read-only disk of the run directory, while that of the checkpoints has space.
TEST_F(CheckpointWriterTest, CommitsCheckpointWhenRecordCannotBeWritten) {
  start();
  for (uint64_t step = 1; step <= 3; ++step) ASSERT_TRUE(save(step).ok());
  const size_t before = files_.operations().size();
  ASSERT_TRUE(save(4).ok());
  std::vector<size_t> of_record;  // positions within a save
  for (size_t i = before; i < files_.operations().size(); ++i)
    if (files_.operations()[i].path.find("last_checkpoint.json") != std::string::npos)
      of_record.push_back(i - before + 1);
  ASSERT_EQ(of_record.size(), 4u) << "open, write, sync, rename";
  uint64_t step = 5;
  for (const int error : {ENOSPC, EROFS})
    for (const size_t at : of_record) {
      ASSERT_TRUE(writer_->wait_idle(60s));
      files_.fail_at(files_.operations().size() + at, {.error = error});
      EXPECT_TRUE(save(step).ok()) << at;
      EXPECT_THAT(steps(), ElementsAre(step - 1, step));
      EXPECT_EQ((*run::read_last_checkpoint(layout_.last_checkpoint_file()))->step, step - 1);
      ASSERT_TRUE(save(step + 1).ok());
      EXPECT_EQ((*run::read_last_checkpoint(layout_.last_checkpoint_file()))->step, step + 1);
      step += 2;
    }
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_EQ(writer_->stats().failures, 0u);
  EXPECT_FALSE(writer_->stats().degraded);
}

TEST_F(CheckpointWriterTest, WritesSubmittedSnapshotBeforeStopping) {
  make();
  auto last = submit(5);
  coordinator_.request_stop();
  run();
  ASSERT_TRUE(last.has_value());
  EXPECT_TRUE(last->get().ok());
  EXPECT_TRUE(coordinator_.join(60s).ok());
  EXPECT_THAT(steps(), ElementsAre(5));
}

TEST_F(CheckpointWriterTest, DoesNotOverwriteExistingCheckpoint) {
  start(3);
  ASSERT_TRUE(save(1).ok());
  EXPECT_EQ(save(1).status().code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(writer_->wait_idle(60s));
  EXPECT_EQ(writer_->stats().failures, 1u);  // not retried
}

}  // namespace
}  // namespace stoker::writer
