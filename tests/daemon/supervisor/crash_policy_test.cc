#include "daemon/supervisor/crash_policy.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/feed/quarantine_table.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class QuarantineTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    auto table = feed::QuarantineTable::create(2, 4);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    table_.emplace(*std::move(table));
    quarantine_.emplace(*table_, data_.get());
  }
  // Process `worker` crashes while it is reading these samples.
  Result<bool> crash(uint32_t worker, const std::vector<uint64_t>& marked_samples) {
    std::list<feed::QuarantineTable::Mark> marks;
    for (const uint64_t sample : marked_samples) marks.emplace_back(*table_, worker, sample);
    return quarantine_->assess_crash(worker, "signal 9 (Killed)");
  }
  bool crash_and_quarantine(uint32_t worker, const std::vector<uint64_t>& marked_samples) {
    const auto put = crash(worker, marked_samples);
    return put.ok() && *put;
  }
  std::optional<feed::QuarantineTable> table_;
  std::optional<Quarantine> quarantine_;
};

TEST_F(QuarantineTest, QuarantinesSampleOnThirdCrashWithItAlone) {
  EXPECT_FALSE(crash_and_quarantine(0, {7}));
  EXPECT_FALSE(crash_and_quarantine(1, {7}));
  EXPECT_FALSE(table_->quarantined(7));
  EXPECT_TRUE(crash_and_quarantine(0, {7}));
  EXPECT_TRUE(table_->quarantined(7));
  EXPECT_FALSE(table_->suspected(7));
  EXPECT_THAT(quarantine_->samples(), ElementsAre(7));
}

TEST_F(QuarantineTest, MarksAllReadSamplesSuspectWithoutCountingCrash) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(crash_and_quarantine(0, {7, 8}));
  EXPECT_TRUE(table_->suspected(7));
  EXPECT_TRUE(table_->suspected(8));
  EXPECT_THAT(quarantine_->samples(), IsEmpty());
}

TEST_F(QuarantineTest, ClearsSuspectAfterSuccessfulRead) {
  EXPECT_FALSE(crash_and_quarantine(0, {7}));
  EXPECT_FALSE(crash_and_quarantine(0, {7}));
  const feed::CrashTrackingDataset guarded(*data_, *table_, 1);
  std::vector<std::byte> input(sizeof(float) * 30);
  std::vector<std::byte> label(sizeof(int64_t));
  const std::vector<std::span<std::byte>> outputs{input, label};
  ASSERT_TRUE(guarded.read(7, {}, outputs).ok());
  EXPECT_FALSE(table_->suspected(7));
  EXPECT_FALSE(crash_and_quarantine(0, {7}));
  EXPECT_FALSE(crash_and_quarantine(0, {7}));
  EXPECT_TRUE(crash_and_quarantine(0, {7}));
}

TEST_F(QuarantineTest, TracksAllSamplesReadTogether) {
  {
    feed::QuarantineTable::Mark mark(*table_, 0, 7);
    for (uint64_t sample = 8; sample < 7 + feed::QuarantineTable::kMaxSamplesPerMark; ++sample)
      mark.add(sample);
    const feed::QuarantineTable::Mark other(*table_, 0, 100);
    const auto marked_samples = table_->drain_marks(0);
    EXPECT_EQ(marked_samples.size(), feed::QuarantineTable::kMaxSamplesPerMark + 1);
    EXPECT_THAT(marked_samples, ::testing::IsSupersetOf({7u, 8u, 38u, 100u}));
  }
  {
    feed::QuarantineTable::Mark mark(*table_, 0, 7);
    mark.add(9);
  }
  EXPECT_THAT(table_->drain_marks(0), IsEmpty()) << "they came back";
}

TEST_F(QuarantineTest, SuspectsNothingAfterCrashWithoutSamples) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(crash_and_quarantine(0, {}));
  EXPECT_THAT(quarantine_->samples(), IsEmpty());
}

TEST_F(QuarantineTest, PreservesMarksOfLiveProcesses) {
  const feed::QuarantineTable::Mark alive(*table_, 1, 9);
  for (int i = 0; i < 3; ++i) (void)crash(0, {7});
  EXPECT_THAT(quarantine_->samples(), ElementsAre(7));
  EXPECT_THAT(table_->drain_marks(1), ElementsAre(9));
}

TEST_F(QuarantineTest, IgnoresOutOfRangeSampleNumbers) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(crash_and_quarantine(0, {data_->size(), ~0ull - 1}));
  EXPECT_FALSE(table_->suspected(data_->size()));
}

TEST_F(QuarantineTest, ReadsUnmarkedWhenMarksAreExhausted) {
  std::list<feed::QuarantineTable::Mark> marks;
  for (uint64_t sample = 0; sample < 9; ++sample) marks.emplace_back(*table_, 0, sample);
  EXPECT_EQ(table_->drain_marks(0).size(), 4u);
  EXPECT_THAT(table_->drain_marks(1), IsEmpty());
}

TEST_F(QuarantineTest, FailsWhenQuarantineIsFull) {
  std::vector<uint64_t> all;
  for (uint64_t sample = 0; sample < feed::kMaxQuarantined; ++sample) all.push_back(sample);
  ASSERT_TRUE(quarantine_->restore(all).ok());
  EXPECT_TRUE(quarantine_->restore(all).ok()) << "nothing new";
  EXPECT_EQ(quarantine_->restore({499}).code(), StatusCode::kCorrupt);
  (void)crash(0, {499});
  (void)crash(0, {499});
  const auto last = crash(0, {499});
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.status().code(), StatusCode::kCorrupt);
}

TEST_F(QuarantineTest, DropsSuspectsBeyondCapacity) {
  for (uint64_t sample = 0; sample < feed::kMaxSuspects; ++sample)
    EXPECT_TRUE(table_->suspect(sample));
  EXPECT_FALSE(table_->suspect(feed::kMaxSuspects));
  table_->clear_suspect(0);
  EXPECT_TRUE(table_->suspect(feed::kMaxSuspects));
}

TEST_F(QuarantineTest, SharesStateBetweenAttachedTableAndOwner) {
  const auto other = feed::QuarantineTable::attach(UniqueFd(::dup(table_->fd())));
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_EQ(other->workers(), 2u);
  EXPECT_TRUE(table_->quarantine(3));
  EXPECT_TRUE(other->quarantined(3));
  const feed::QuarantineTable::Mark mark(*other, 1, 5);
  EXPECT_THAT(table_->drain_marks(1), ElementsAre(5));
}

TEST_F(QuarantineTest, PassesFailureOfWorkerOnce) {
  const auto other = feed::QuarantineTable::attach(UniqueFd(::dup(table_->fd())));
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_TRUE(table_->take_failure(1).ok());
  other->set_failure(1, Status(StatusCode::kCorrupt, "a.csv:\x1b[2J " + std::string(2000, 'x')));
  EXPECT_TRUE(table_->take_failure(0).ok());
  const Status failure = table_->take_failure(1);
  EXPECT_EQ(failure.code(), StatusCode::kCorrupt);
  EXPECT_EQ(failure.message(), "a.csv:?[2J " + std::string(1008 - 11, 'x'));
  EXPECT_TRUE(table_->take_failure(1).ok());
  EXPECT_TRUE(table_->suspect(7)) << "the sets are unchanged";
  other->set_failure(1, Status(StatusCode::kCancelled, "stopped"));
  EXPECT_EQ(table_->take_failure(1).code(), StatusCode::kInternal) << "not an error of the data";
}

TEST_F(QuarantineTest, RejectsForeignSegmentOnAttach) {
  open_ring({.slots = 2});
  EXPECT_EQ(feed::QuarantineTable::attach(UniqueFd(::dup(ring_->fd()))).status().code(),
            StatusCode::kMismatch);
  EXPECT_EQ(feed::QuarantineTable::attach(UniqueFd(-1)).status().code(), StatusCode::kMismatch);
  auto small = ring::Segment::create(8);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(feed::QuarantineTable::attach(UniqueFd(::dup(small->fd()))).status().code(),
            StatusCode::kMismatch);
}

TEST_F(QuarantineTest, SharesUseOfEachWorker) {
  const auto other = feed::QuarantineTable::attach(UniqueFd(::dup(table_->fd())));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(table_->use(0).load().cpu_seconds, 0) << "nothing is stored yet";
  other->use(0).store({.cpu_seconds = 1.5, .rss_bytes = 7e9, .read_bytes = 3, .written_bytes = 4});
  const ProcessUse use = table_->use(0).load();
  EXPECT_EQ(use.cpu_seconds, 1.5);
  EXPECT_EQ(use.rss_bytes, 7e9);
  EXPECT_EQ(use.read_bytes, 3);
  EXPECT_EQ(use.written_bytes, 4);
  // A worker can write anything.
  for (const double invalid :
       {-1.0, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
    other->use(0).store({.cpu_seconds = invalid, .rss_bytes = 1});
    EXPECT_TRUE(std::isnan(table_->use(0).load().cpu_seconds)) << invalid;
    EXPECT_EQ(table_->use(0).load().rss_bytes, 1);
  }
}

TEST_F(QuarantineTest, RejectsInconsistentSizesOnAttach) {
  const auto copy = [this](size_t word, uint64_t value) {
    auto original = ring::Segment::attach(UniqueFd(::dup(table_->fd())));
    auto changed = ring::Segment::create(original->bytes().size());
    std::copy(original->bytes().begin(), original->bytes().end(), changed->bytes().begin());
    std::memcpy(changed->bytes().data() + word * sizeof(value), &value, sizeof(value));
    return feed::QuarantineTable::attach(UniqueFd(::dup(changed->fd()))).status().code();
  };
  EXPECT_EQ(copy(1, 2), StatusCode::kOk) << "unchanged";
  for (const size_t word : {1, 2})
    for (const uint64_t value : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 32, ~uint64_t{0}})
      EXPECT_EQ(copy(word, value), StatusCode::kMismatch) << word << " " << value;
}

// Counts the concurrent reads while a suspect is read.
class WatchedDataset final : public data::Dataset {
 public:
  WatchedDataset(const data::Dataset& data, uint64_t suspect) : data_(data), suspect_(suspect) {}
  const data::DatasetInfo& info() const override { return data_.info(); }
  data::SampleSource source(uint64_t sample) const override { return data_.source(sample); }
  Status read(uint64_t sample, const data::RandomKey&,
              std::span<const std::span<std::byte>>) const override {
    ++reading_;
    ++reads_;
    for (int i = 0; sample == suspect_ && i < 1000; ++i) {
      max_ = std::max(max_.load(), reading_.load());
      std::this_thread::yield();
    }
    --reading_;
    return {};
  }
  mutable std::atomic<int> reading_{0};
  mutable std::atomic<int> reads_{0};  // total
  mutable std::atomic<int> max_{0};    // written by the thread that reads the suspect

 private:
  const data::Dataset& data_;
  const uint64_t suspect_;
};

// Records which samples were marked during a batch read, and how they were requested.
class BatchDataset final : public data::DatasetDecorator {
 public:
  BatchDataset(const data::Dataset& data, const feed::QuarantineTable& table)
      : DatasetDecorator(data), table_(table) {}
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    ++one_by_one_;
    return inner().read(sample, random_key, outputs);
  }
  data::BatchReadResult read_batch(std::span<const data::SampleReadRequest> samples,
                                   std::span<const std::span<std::byte>> rows) const override {
    marked_samples_ = table_.drain_marks(0);
    return inner().read_batch(samples, rows);
  }
  mutable std::vector<uint64_t> marked_samples_;
  mutable int one_by_one_ = 0;

 private:
  const feed::QuarantineTable& table_;
};

TEST_F(QuarantineTest, ReadsSamplesSeparatelyWhenAnyIsSuspectOrQuarantined) {
  const BatchDataset watched(*data_, *table_);
  const feed::CrashTrackingDataset guarded(watched, *table_, 0);
  std::vector<std::byte> input(3 * sizeof(float) * 30), label(3 * sizeof(int64_t));
  const std::vector<std::span<std::byte>> rows{input, label};
  const std::vector<data::SampleReadRequest> reads{{.sample = 5}, {.sample = 6}, {.sample = 7}};
  EXPECT_EQ(guarded.read_batch(reads, rows).good, 3u);
  EXPECT_THAT(watched.marked_samples_, ElementsAre(5, 6, 7));
  EXPECT_EQ(watched.one_by_one_, 0);
  ASSERT_TRUE(table_->suspect(6));
  EXPECT_EQ(guarded.read_batch(reads, rows).good, 3u);
  EXPECT_EQ(watched.one_by_one_, 3);
  EXPECT_FALSE(table_->suspected(6)) << "it came back";
  ASSERT_TRUE(table_->quarantine(6));
  const data::BatchReadResult read = guarded.read_batch(reads, rows);
  EXPECT_EQ(read.good, 1u);
  EXPECT_EQ(read.status.code(), StatusCode::kCorrupt);
}

TEST_F(QuarantineTest, ReadsSuspectAlone) {
  const WatchedDataset watched(*data_, 7);
  const feed::CrashTrackingDataset guarded(watched, *table_, 0);
  ASSERT_TRUE(table_->suspect(7));
  {
    std::vector<std::jthread> others;
    for (int i = 0; i < 3; ++i)
      others.emplace_back([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          EXPECT_TRUE(guarded.read(8, {}, {}).ok());
          std::this_thread::yield();
        }
      });
    EXPECT_TRUE(eventually([&] { return watched.reads_ > 0; }));
    EXPECT_TRUE(guarded.read(7, {}, {}).ok());
  }
  EXPECT_EQ(watched.max_, 1);
}

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Records `times` crashes; returns the status of the last one or the first error.
Status crash(RestartLimiter& budget, int times, RestartLimiter::Crash crash,
             std::chrono::nanoseconds between = 0ns, uint64_t batches_between = 0) {
  crash.cause = "signal 11";
  for (int i = 0; i < times; ++i) {
    if (const Status status = budget.record_crash(crash); !status.ok()) return status;
    crash.now += between;
    crash.published += batches_between;
  }
  return {};
}

TEST(RestartLimiterTest, FailsAfterTwentyCrashesWithoutProgress) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(crash(budget, 19, {}).ok());
  const Status last = crash(budget, 1, {});
  EXPECT_EQ(last.code(), StatusCode::kInternal);
  EXPECT_THAT(last.message(), HasSubstr("20 crashes without a new batch; last cause: signal 11"));
  EXPECT_EQ(budget.crashes(), 20u);
}

TEST(RestartLimiterTest, ResetsCrashCountOnNewBatch) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(crash(budget, 19, {}).ok());
  EXPECT_TRUE(crash(budget, 19, {.published = 1}).ok());
  EXPECT_FALSE(crash(budget, 1, {.published = 1}).ok());
}

TEST(RestartLimiterTest, ResetsCrashCountOnQuarantinedSample) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(crash(budget, 19, {}).ok());
  EXPECT_TRUE(crash(budget, 1, {.made_progress = true}).ok());
  EXPECT_TRUE(crash(budget, 18, {}).ok());
}

TEST(RestartLimiterTest, FailsAfterThreeVoluntaryExits) {
  RestartLimiter budget(1000);
  EXPECT_TRUE(crash(budget, 2, {.is_unprovoked = true}).ok());
  EXPECT_FALSE(crash(budget, 1, {.is_unprovoked = true}).ok());
}

TEST(RestartLimiterTest, FailsWithErrorOfLastProcess) {
  RestartLimiter budget(1000);
  const Status failure(StatusCode::kIoError, "open a.png: No such file or directory");
  EXPECT_TRUE(crash(budget, 2, {.is_unprovoked = true, .code = StatusCode::kInternal}).ok());
  const Status last = crash(budget, 1, {.is_unprovoked = true, .failure = failure});
  EXPECT_EQ(last.code(), StatusCode::kIoError);
  EXPECT_EQ(last.message(),
            "worker processes fail repeatedly (3 times without a new batch): open a.png: No such "
            "file or directory");
}

TEST(RestartLimiterTest, FailsAbovePerMinuteLimitDespiteProgress) {
  RestartLimiter budget(30);
  const Status status = crash(budget, 100, {}, 1s, 1);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(),
              HasSubstr("31 crashes within a minute, more than feed.max_restarts_per_minute = 30"));
}

TEST(RestartLimiterTest, AllowsSameCrashCountOverLongerTime) {
  RestartLimiter budget(30);
  EXPECT_TRUE(crash(budget, 1000, {}, 3s, 1).ok());
}

}  // namespace
}  // namespace stoker::supervisor
