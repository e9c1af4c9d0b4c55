#include "shared/metrics/metrics_writer.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/coordinator.h"
#include "tests/shared/metrics/failing_files.h"
#include "tests/support/logged_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::metrics {
namespace {

using namespace std::chrono_literals;

class MetricsWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.train_metrics_path = directory_ / "train.jsonl";
    options_.tensorboard_directory = directory_ / "tensorboard";
  }

  std::unique_ptr<MetricsWriter> open(std::optional<ResumePosition> resume = {}) {
    auto writer = MetricsWriter::open(files_, clock_, options_, resume);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    return writer.ok() ? *std::move(writer) : nullptr;
  }
  void start(Coordinator& threads, MetricsWriter& writer) {
    threads.start("metrics",
                  [&writer](std::stop_token stop) { return writer.run(std::move(stop)); });
  }
  static TrainMetrics make_record(uint64_t step) {
    TrainMetrics row;
    row.step = step;
    row.loss = 10.0 / static_cast<double>(step + 1);
    row.wall_time = "w";
    return row;
  }
  std::vector<uint64_t> steps() {
    std::vector<uint64_t> found;
    const auto read = read_records(options_.train_metrics_path);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    for (const MetricsRecord& row : read->records)
      found.push_back(row.find_count("step").value_or(0));
    return found;
  }
  uint64_t bytes() { return std::filesystem::file_size(options_.train_metrics_path); }

  const test::TemporaryDirectory directory_;
  MetricsWriterOptions options_;
  FailingFileSystem files_;
  ManualClock clock_;
};

TEST_F(MetricsWriterTest, ReportsPositionEqualToFileLengthAfterFlush) {
  auto writer = open();
  Coordinator threads;
  start(threads, *writer);
  for (uint64_t step = 1; step <= 50; ++step) {
    const uint64_t position = writer->report(make_record(step));
    EXPECT_EQ(position, writer->position());
    if (step % 10 == 0) {
      ASSERT_TRUE(writer->flush(60s).ok());
      EXPECT_EQ(bytes(), position);
    }
  }
  threads.request_stop();
  EXPECT_TRUE(threads.join(60s).ok());
  EXPECT_EQ(steps().size(), 50u);
}

// In TensorBoard's format: the tag followed by the value as a float.
TEST_F(MetricsWriterTest, WritesSkippedStepsAndLossScaleToTensorBoard) {
  const auto events = [&] {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(options_.tensorboard_directory)) {
      std::ifstream file(entry.path(), std::ios::binary);
      bytes.append(std::istreambuf_iterator<char>(file), {});
    }
    return bytes;
  };
  const auto read_value = [&](const std::string& tag) -> std::optional<float> {
    const std::string bytes = events();
    const size_t at = bytes.find(tag);
    float number = 0;
    if (at == std::string::npos || at + tag.size() + 1 + sizeof number > bytes.size()) return {};
    std::memcpy(&number, &bytes[at + tag.size() + 1], sizeof number);
    return number;
  };
  auto writer = open();
  TrainMetrics row = make_record(3);
  writer->report(row);
  writer.reset();
  EXPECT_EQ(read_value("loss"), 2.5F);
  EXPECT_EQ(read_value("train/skipped_steps"), std::nullopt);
  EXPECT_EQ(read_value("train/loss_scale"), std::nullopt);

  std::filesystem::remove_all(options_.tensorboard_directory);
  writer = open(ResumePosition{.step = 3, .metrics_bytes = bytes()});
  row = make_record(6);
  row.maybe_skipped_steps = 7;
  row.metrics.emplace_back("accuracy", 0.5);
  row.maybe_loss_scale = 32768;
  writer->report(row);
  writer.reset();
  EXPECT_EQ(read_value("train/skipped_steps"), 7.0F);
  EXPECT_EQ(read_value("train/accuracy"), 0.5F);
  EXPECT_EQ(read_value("train/loss_scale"), 32768.0F);
}

TEST_F(MetricsWriterTest, WritesQueuedRecordsOnStop) {
  auto writer = open();
  Coordinator threads;
  files_.block_writes();
  start(threads, *writer);
  for (uint64_t step = 1; step <= 20; ++step) writer->report(make_record(step));
  threads.request_stop();
  files_.unblock_writes();
  EXPECT_TRUE(threads.join(60s).ok());
  EXPECT_EQ(steps().size(), 20u);
}

TEST_F(MetricsWriterTest, WritesRecordsReportedAfterThreadExit) {
  auto writer = open();
  Coordinator threads;
  start(threads, *writer);
  threads.request_stop();
  ASSERT_TRUE(threads.join(60s).ok());
  writer->report(make_record(1));
  ASSERT_TRUE(writer->flush(60s).ok());
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1}));
  writer->report(make_record(2));
  writer.reset();
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(MetricsWriterTest, WritesOneLinePerStepAfterResume) {
  ResumePosition resume_at_five{.step = 5};
  {
    auto writer = open();
    for (uint64_t step = 1; step <= 9; ++step) {
      const uint64_t position = writer->report(make_record(step));
      if (step == 5) resume_at_five.metrics_bytes = position;
    }
  }
  auto writer = open(resume_at_five);
  EXPECT_EQ(writer->position(), resume_at_five.metrics_bytes);
  EXPECT_EQ(bytes(), resume_at_five.metrics_bytes);
  for (uint64_t step = 6; step <= 7; ++step) writer->report(make_record(step));
  writer.reset();
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(MetricsWriterTest, ContinuesAfterMissingRecordsOnResume) {
  {
    auto writer = open();
    writer->report(make_record(1));
  }
  auto writer = open(ResumePosition{.step = 8, .metrics_bytes = 100000});
  EXPECT_EQ(writer->position(), bytes());
  writer->report(make_record(9));
  writer.reset();
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 9}));
}

TEST_F(MetricsWriterTest, ArchivesCorruptFileOnResume) {
  std::ofstream(options_.train_metrics_path) << "{\"step\":1}\ngarbage\n{\"step\":9}\n";
  auto writer = open(ResumePosition{.step = 5, .metrics_bytes = 11});
  writer->report(make_record(6));
  writer.reset();
  EXPECT_EQ(steps(), (std::vector<uint64_t>{6}));
  EXPECT_EQ(*read_file(options_.train_metrics_path + ".archived-1", 100),
            "{\"step\":1}\ngarbage\n{\"step\":9}\n");
}

TEST_F(MetricsWriterTest, ArchivesPreviousRecordsOnNewRun) {
  {
    auto writer = open();
    writer->report(make_record(1));
  }
  for (const char* suffix : {".archived-1", ".archived-2"}) {
    auto writer = open();
    EXPECT_EQ(writer->position(), 0u);
    EXPECT_TRUE(std::filesystem::exists(options_.train_metrics_path + suffix));
    writer->report(make_record(1));
    writer.reset();
    EXPECT_EQ(steps(), (std::vector<uint64_t>{1}));
  }
}

TEST_F(MetricsWriterTest, DropsNewestRecordsWhenDiskIsSlow) {
  options_.queue_capacity = 4;
  options_.tensorboard_directory.clear();
  auto writer = open();
  Coordinator threads;
  files_.block_writes();
  start(threads, *writer);
  writer->report(make_record(1));
  files_.wait_until_write_is_blocked();  // step 1 has left the queue
  for (uint64_t step = 2; step <= 9; ++step) writer->report(make_record(step));
  EXPECT_EQ(writer->dropped(), 4u);
  const uint64_t position = writer->position();
  EXPECT_EQ(writer->flush(1ms).code(), StatusCode::kTimedOut);
  files_.unblock_writes();
  ASSERT_TRUE(writer->flush(60s).ok());
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(bytes(), position);
}

TEST_F(MetricsWriterTest, CountsFailedWritesAndRecoversOnFullDisk) {
  options_.tensorboard_directory.clear();
  auto writer = open();
  Coordinator threads;
  start(threads, *writer);
  writer->report(make_record(1));
  ASSERT_TRUE(writer->flush(60s).ok());
  files_.fail_after_bytes(20);
  writer->report(make_record(2));
  EXPECT_EQ(writer->flush(60s).code(), StatusCode::kNoSpace);
  EXPECT_EQ(writer->failed(), 1u);
  EXPECT_EQ(writer->position(), bytes());
  files_.repair();
  writer->report(make_record(3));
  ASSERT_TRUE(writer->flush(60s).ok());
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(writer->position(), bytes());
}

TEST_F(MetricsWriterTest, LogsLostTensorBoardRecordsAfterFullDisk) {
  auto writer = open();
  Coordinator threads;
  start(threads, *writer);
  files_.fail_after_bytes(0);
  uint64_t step = 0;
  // More than the buffer of the event file: 1 MiB.
  for (int batch = 0; batch < 100; ++batch) {
    for (int i = 0; i < 50; ++i) writer->report(make_record(++step));
    EXPECT_EQ(writer->flush(60s).code(), StatusCode::kNoSpace);
  }
  const std::string logged = test::log_of([&] {
    files_.repair();
    writer->report(make_record(++step));
    EXPECT_TRUE(writer->flush(60s).ok());
  });
  EXPECT_THAT(logged,
              testing::ContainsRegex("metrics record dropped step=5001 total=[1-9][0-9]+ reason="));
}

TEST_F(MetricsWriterTest, WritesNoEventFileUnlessEnabled) {
  options_.tensorboard_directory.clear();
  auto writer = open();
  writer->report_text("sample", 1, "text");
  writer->report(make_record(1));
  writer.reset();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tensorboard"));
}

TEST_F(MetricsWriterTest, ReportsErrorWhenFileCannotBeOpened) {
  options_.train_metrics_path = directory_ / "none/train.jsonl";
  EXPECT_EQ(MetricsWriter::open(files_, clock_, options_, {}).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::metrics
