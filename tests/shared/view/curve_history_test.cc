#include "shared/view/curve_history.h"

#include <unistd.h>

#include <fstream>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::view {
namespace {

namespace json = boost::json;

class CurveHistoryTest : public ::testing::Test {
 protected:
  std::string path() const { return root_ / "train.jsonl"; }
  static std::string line(uint64_t step, double loss) {
    return metrics::to_json(metrics::to_record(
               {.step = step, .loss = loss, .lr = 0.5, .wall_time = "2026-01-31T12:00:00.000Z"})) +
           "\n";
  }
  void append(const std::string& text) { std::ofstream(path(), std::ios::app) << text; }
  static json::object columns(const CurveHistory& history) {
    return json::parse(history.to_json()).at("columns").as_object();
  }
  const test::TemporaryDirectory root_;
};

// The file can be that of another user, and sparse.
TEST_F(CurveHistoryTest, ReadsLimitedNumberOfBytesInCall) {
  constexpr size_t kBytes = 3 << 20;
  std::string text;
  uint64_t step = 0;
  while (text.size() < kBytes) text += line(++step, 1);
  append(text);
  ASSERT_EQ(::truncate(path().c_str(), off_t{1} << 40), 0);
  CurveHistory history(path());
  history.refresh(1 << 20);
  ASSERT_TRUE(history.last());
  EXPECT_LT((*history.last())[CurveHistory::kStep], static_cast<double>(step));
  history.refresh(3 << 20);
  EXPECT_EQ((*history.last())[CurveHistory::kStep], static_cast<double>(step));
}

TEST_F(CurveHistoryTest, ReadsWhatIsAppended) {
  CurveHistory history(path());
  history.refresh();  // no file yet
  uint64_t count = 0;
  EXPECT_FALSE(history.rows_since(count));  // unknown: the first call
  append(line(10, 2) + line(20, 1).substr(0, 30));
  history.refresh();
  ASSERT_EQ(history.rows_since(count)->size(), 1u);
  append(line(20, 1).substr(30));
  history.refresh();
  const auto rows = history.rows_since(count);
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->front()[CurveHistory::kStep], 20);
  EXPECT_EQ(columns(history).at("loss"), (json::array{2, 1}));
  EXPECT_TRUE(history.rows_since(count)->empty());
}

TEST_F(CurveHistoryTest, ReplacesRowsAfterRollback) {
  append(line(10, 5) + line(20, 4) + line(30, 3));
  CurveHistory history(path());
  history.refresh();
  uint64_t count = 0;
  (void)history.rows_since(count);
  std::ofstream(path(), std::ios::trunc) << line(10, 5) << line(20, 2);
  history.refresh();
  EXPECT_FALSE(history.rows_since(count));
  EXPECT_EQ(columns(history).at("step"), (json::array{10, 20}));
  EXPECT_EQ(columns(history).at("loss"), (json::array{5, 2}));
}

// A rollback or resume truncates the file; until the next refresh it has grown beyond its old size.
TEST_F(CurveHistoryTest, ReplacesRowsAfterFileHasGrownAgain) {
  append(line(10, 5) + line(20, 4) + line(30, 3));
  CurveHistory history(path());
  history.refresh();
  uint64_t count = 0;
  (void)history.rows_since(count);
  std::ofstream(path(), std::ios::trunc)
      << line(10, 5) << line(20, 2) << line(30, 1) << line(40, 1);
  history.refresh();
  EXPECT_FALSE(history.rows_since(count));
  EXPECT_EQ(columns(history).at("step"), (json::array{10, 20, 30, 40}));
  EXPECT_EQ(columns(history).at("loss"), (json::array{5, 2, 1, 1}));
}

// The end of a line that was being written when the trainer was killed.
TEST_F(CurveHistoryTest, ReplacesIncompleteLine) {
  append(line(10, 5) + line(20, 4).substr(0, 12));
  CurveHistory history(path());
  history.refresh();
  std::ofstream(path(), std::ios::trunc) << line(10, 5) << line(15, 3) << line(20, 2);
  history.refresh();
  EXPECT_EQ(columns(history).at("step"), (json::array{10, 15, 20}));
}

TEST_F(CurveHistoryTest, ContinuesAfterLineThatIsTooLong) {
  append(line(10, 5) + std::string(3 << 20, 'x'));
  CurveHistory history(path());
  history.refresh();
  uint64_t count = 0;
  (void)history.rows_since(count);
  append(std::string(3 << 20, 'x') + "\n" + line(20, 4));
  history.refresh();
  ASSERT_TRUE(history.rows_since(count));  // not read again from the start
  append(line(30, 3));
  history.refresh();
  EXPECT_EQ(history.rows_since(count)->size(), 1u);
  EXPECT_EQ(columns(history).at("step"), (json::array{10, 20, 30}));
}

TEST_F(CurveHistoryTest, IgnoresOtherLines) {
  append("garbage\n" + line(10, 2) + "{}\n\n" + line(20, 1));
  CurveHistory history(path());
  history.refresh();
  EXPECT_EQ(columns(history).at("step"), (json::array{10, 20}));
}

TEST_F(CurveHistoryTest, KeepsExtremesOfMergedRows) {
  std::string text;
  const uint64_t records = 4 * CurveHistory::kMaxRows + 1;
  for (uint64_t i = 1; i <= records; ++i) text += line(i, i == 100 ? 50 : i == 200 ? -50 : 1);
  append(text);
  CurveHistory history(path());
  history.refresh();
  const json::object root = json::parse(history.to_json()).as_object();
  const json::object& all = root.at("columns").as_object();
  EXPECT_LE(all.at("step").as_array().size(), 2 * CurveHistory::kMaxRows);
  EXPECT_EQ(root.at("records_per_row"), 4);
  EXPECT_EQ(all.at("step").as_array().back(), records);
  double max = 0, min = 0, sum = 0;
  for (size_t i = 0; i < all.at("step").as_array().size(); ++i) {
    max = std::max(max, all.at("loss_max").as_array()[i].to_number<double>());
    min = std::min(min, all.at("loss_min").as_array()[i].to_number<double>());
    sum += all.at("loss").as_array()[i].to_number<double>();
  }
  EXPECT_EQ(max, 50);
  EXPECT_EQ(min, -50);
  EXPECT_NEAR(sum, static_cast<double>(all.at("step").as_array().size()), 2);
}

// A record of a model with other metrics, after a resume.
TEST_F(CurveHistoryTest, HasColumnForEachTrainingMetric) {
  const auto record = [](uint64_t step, std::vector<std::pair<std::string, double>> values) {
    return metrics::to_json(metrics::to_record({.step = step,
                                                .loss = 1,
                                                .metrics = std::move(values),
                                                .wall_time = "2026-01-31T12:00:00.000Z"})) +
           "\n";
  };
  append(record(10, {{"kl", 3}, {"accuracy", 0.5}}) + record(20, {{"accuracy", 0.75}, {"mae", 2}}));
  CurveHistory history(path());
  history.refresh();
  const json::object all = columns(history);
  EXPECT_EQ(all.at("metric/kl"), (json::array{3, nullptr}));
  EXPECT_EQ(all.at("metric/accuracy"), (json::array{0.5, 0.75}));
  EXPECT_EQ(all.at("metric/mae"), (json::array{nullptr, 2}));
}

TEST_F(CurveHistoryTest, WritesNonfiniteValuesAsNull) {
  append(R"({"step":1,"epoch":0,"loss":null,"lr":0.1,"grad_norm":1,"samples_seen":1,)"
         R"("samples_per_second":1,"step_time_ms":1,"data_wait_ms":1,"checkpoint_stall_ms":0,)"
         R"("degraded":0,"wall_time":"2026-01-31T12:00:00.000Z"})"
         "\n");
  CurveHistory history(path());
  history.refresh();
  EXPECT_TRUE(columns(history).at("loss").as_array()[0].is_null());
}

// A record of a run without worker processes has none of theirs; most records measure nothing.
TEST_F(CurveHistoryTest, HasColumnsOfMeasuredResources) {
  metrics::TrainMetrics measured{.step = 20, .loss = 1, .wall_time = "2026-01-31T12:00:00.000Z"};
  measured.resources[Resource::kCpu] = 1.5;
  measured.resources[Resource::kDiskWritten] = 4096;
  append(line(10, 2) + metrics::to_json(metrics::to_record(measured)) + "\n" + line(30, 1));
  CurveHistory history(path());
  history.refresh();
  const json::object read = columns(history);
  EXPECT_EQ(read.at("resource/cpu_cores"), (json::array{nullptr, 1.5, nullptr}));
  EXPECT_EQ(read.at("resource/machine_disk_written_bytes_per_second"),
            (json::array{nullptr, 4096, nullptr}));
  EXPECT_FALSE(read.contains("resource/worker_cpu_cores"));
}

// Records that a full disk has lost, and the time between a crash and the restart, are not training.
TEST_F(CurveHistoryTest, TrainedTimeIsNotLongerThanWallTime) {
  const auto record = [](uint64_t step, const std::string& time) {
    return metrics::to_json(metrics::to_record({.step = step,
                                                .epoch = step / 100,
                                                .loss = 1,
                                                .step_time_ms = 100,
                                                .maybe_exchange_ms = 30,
                                                .wall_time = "2026-01-31T12:" + time + ".000Z"})) +
           "\n";
  };
  // 10 steps of 0.1 s; 1000 steps in a minute, of which no record was written; 10 steps after an hour.
  append(record(10, "00:01") + record(20, "00:02") + record(1020, "01:02") + record(1030, "59:00"));
  CurveHistory history(path());
  history.refresh();
  EXPECT_EQ(columns(history).at("trained_seconds"), (json::array{1, 2, 62, 63}));
  EXPECT_EQ(columns(history).at("seconds"), (json::array{0, 1, 61, 3539}));
  EXPECT_EQ(columns(history).at("epoch"), (json::array{0, 0, 10, 10}));
  EXPECT_EQ(columns(history).at("exchange_ms"), (json::array{30, 30, 30, 30}));
  // The last record as it is, also if the last row is a mean.
  EXPECT_EQ(json::parse(history.to_json(2)).at("last").at("step"), 1030);
}

}  // namespace
}  // namespace stoker::view
