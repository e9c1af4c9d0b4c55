#include "daemon/feeder/quarantine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/feeder/guarded_dataset.h"
#include "tests/daemon/feeder/feeder_fixture.h"

namespace stoker::feeder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class QuarantineTest : public FeederTest {
 protected:
  void SetUp() override {
    FeederTest::SetUp();
    auto table = QuarantineTable::create(2, 4);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    table_.emplace(*std::move(table));
    quarantine_.emplace(*table_, *data_);
  }
  // Process `reader` dies with these in hand.
  Result<bool> die(uint32_t reader, const std::vector<uint64_t>& in_hand) {
    std::list<QuarantineTable::Mark> marks;
    for (const uint64_t sample : in_hand) marks.emplace_back(*table_, reader, sample);
    return quarantine_->judge_death(reader, "signal 9 (Killed)");
  }
  bool die_and_put(uint32_t reader, const std::vector<uint64_t>& in_hand) {
    const auto put = die(reader, in_hand);
    return put.ok() && *put;
  }
  std::optional<QuarantineTable> table_;
  std::optional<Quarantine> quarantine_;
};

TEST_F(QuarantineTest, TheThirdDeathOverASampleAlonePutsItAway) {
  EXPECT_FALSE(die_and_put(0, {7}));
  EXPECT_FALSE(die_and_put(1, {7}));
  EXPECT_FALSE(table_->quarantined(7));
  EXPECT_TRUE(die_and_put(0, {7}));
  EXPECT_TRUE(table_->quarantined(7));
  EXPECT_FALSE(table_->suspected(7));
  EXPECT_THAT(quarantine_->samples(), ElementsAre(7));
}

TEST_F(QuarantineTest, OfSeveralInHandNoneIsCountedButAllAreSuspected) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(die_and_put(0, {7, 8}));
  EXPECT_TRUE(table_->suspected(7));
  EXPECT_TRUE(table_->suspected(8));
  EXPECT_THAT(quarantine_->samples(), IsEmpty());
}

TEST_F(QuarantineTest, AReadThatComesBackClearsItsSample) {
  EXPECT_FALSE(die_and_put(0, {7}));
  EXPECT_FALSE(die_and_put(0, {7}));
  const GuardedDataset guarded(*data_, *table_, 1);
  std::vector<std::byte> input(sizeof(float) * 30);
  std::vector<std::byte> label(sizeof(int64_t));
  const std::vector<std::span<std::byte>> outputs{input, label};
  ASSERT_TRUE(guarded.read(7, {}, outputs).ok());
  EXPECT_FALSE(table_->suspected(7));
  EXPECT_FALSE(die_and_put(0, {7}));
  EXPECT_FALSE(die_and_put(0, {7}));
  EXPECT_TRUE(die_and_put(0, {7}));
}

TEST_F(QuarantineTest, SeveralThatAreReadTogetherAreAllInHand) {
  {
    QuarantineTable::Mark mark(*table_, 0, 7);
    for (uint64_t sample = 8; sample < 7 + QuarantineTable::kSamplesAMark; ++sample)
      mark.add(sample);
    const QuarantineTable::Mark other(*table_, 0, 100);
    const auto in_hand = table_->take_marks(0);
    EXPECT_EQ(in_hand.size(), QuarantineTable::kSamplesAMark + 1);
    EXPECT_THAT(in_hand, ::testing::IsSupersetOf({7u, 8u, 38u, 100u}));
  }
  {
    QuarantineTable::Mark mark(*table_, 0, 7);
    mark.add(9);
  }
  EXPECT_THAT(table_->take_marks(0), IsEmpty()) << "they came back";
}

TEST_F(QuarantineTest, ADeathWithNothingInHandSuspectsNobody) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(die_and_put(0, {}));
  EXPECT_THAT(quarantine_->samples(), IsEmpty());
}

TEST_F(QuarantineTest, MarksOfLivingProcessesAreLeftAlone) {
  const QuarantineTable::Mark alive(*table_, 1, 9);
  for (int i = 0; i < 3; ++i) (void)die(0, {7});
  EXPECT_THAT(quarantine_->samples(), ElementsAre(7));
  EXPECT_THAT(table_->take_marks(1), ElementsAre(9));
}

TEST_F(QuarantineTest, NumbersThatAreNoSamplesAreNotBelieved) {
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(die_and_put(0, {data_->size(), ~0ull - 1}));
  EXPECT_FALSE(table_->suspected(data_->size()));
}

TEST_F(QuarantineTest, MoreThreadsThanMarksReadUnmarked) {
  std::list<QuarantineTable::Mark> marks;
  for (uint64_t sample = 0; sample < 9; ++sample) marks.emplace_back(*table_, 0, sample);
  EXPECT_EQ(table_->take_marks(0).size(), 4u);
  EXPECT_THAT(table_->take_marks(1), IsEmpty());
}

TEST_F(QuarantineTest, AFullQuarantineIsAnError) {
  std::vector<uint64_t> all;
  for (uint64_t sample = 0; sample < kMaxQuarantined; ++sample) all.push_back(sample);
  ASSERT_TRUE(quarantine_->restore(all).ok());
  EXPECT_TRUE(quarantine_->restore(all).ok()) << "nothing new";
  EXPECT_EQ(quarantine_->restore({499}).code(), Code::kCorrupt);
  (void)die(0, {499});
  (void)die(0, {499});
  const auto last = die(0, {499});
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.status().code(), Code::kCorrupt);
}

TEST_F(QuarantineTest, SuspectsBeyondTheRoomAreDropped) {
  for (uint64_t sample = 0; sample < kMaxSuspects; ++sample) EXPECT_TRUE(table_->suspect(sample));
  EXPECT_FALSE(table_->suspect(kMaxSuspects));
  table_->acquit(0);
  EXPECT_TRUE(table_->suspect(kMaxSuspects));
}

TEST_F(QuarantineTest, AttachSeesWhatTheOwnerWrites) {
  const auto other = QuarantineTable::attach(UniqueFd(::dup(table_->fd())));
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_EQ(other->readers(), 2u);
  EXPECT_TRUE(table_->quarantine(3));
  EXPECT_TRUE(other->quarantined(3));
  const QuarantineTable::Mark mark(*other, 1, 5);
  EXPECT_THAT(table_->take_marks(1), ElementsAre(5));
}

TEST_F(QuarantineTest, AttachRefusesWhatIsNoTable) {
  open_ring({.slots = 2});
  EXPECT_EQ(QuarantineTable::attach(UniqueFd(::dup(ring_->fd()))).status().code(), Code::kMismatch);
  EXPECT_EQ(QuarantineTable::attach(UniqueFd(-1)).status().code(), Code::kMismatch);
  auto small = ring::Segment::create(8);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(QuarantineTable::attach(UniqueFd(::dup(small->fd()))).status().code(), Code::kMismatch);
}

TEST_F(QuarantineTest, AttachRefusesSizesThatDoNotFit) {
  const auto copy = [this](size_t word, uint64_t value) {
    auto original = ring::Segment::attach(UniqueFd(::dup(table_->fd())));
    auto changed = ring::Segment::create(original->bytes().size());
    std::copy(original->bytes().begin(), original->bytes().end(), changed->bytes().begin());
    std::memcpy(changed->bytes().data() + word * sizeof(value), &value, sizeof(value));
    return QuarantineTable::attach(UniqueFd(::dup(changed->fd()))).status().code();
  };
  EXPECT_EQ(copy(1, 2), Code::kOk) << "unchanged";
  for (const size_t word : {1, 2})
    for (const uint64_t value : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 32, ~uint64_t{0}})
      EXPECT_EQ(copy(word, value), Code::kMismatch) << word << " " << value;
}

// Knows how many read at the same time as a suspect.
class WatchedDataset final : public dataset::Dataset {
 public:
  WatchedDataset(const dataset::Dataset& data, uint64_t suspect) : data_(data), suspect_(suspect) {}
  uint64_t size() const override { return data_.size(); }
  const std::vector<TensorSpec>& spec() const override { return data_.spec(); }
  uint64_t classes() const override { return data_.classes(); }
  const std::string& fingerprint() const override { return data_.fingerprint(); }
  dataset::Origin origin(uint64_t sample) const override { return data_.origin(sample); }
  Status read(uint64_t sample, const dataset::DrawKey&,
              std::span<const std::span<std::byte>>) const override {
    ++reading_;
    ++reads_;
    for (int i = 0; sample == suspect_ && i < 1000; ++i) {
      most_ = std::max(most_.load(), reading_.load());
      std::this_thread::yield();
    }
    --reading_;
    return {};
  }
  mutable std::atomic<int> reading_{0};
  mutable std::atomic<int> reads_{0};  // ever
  mutable std::atomic<int> most_{0};   // written by the one that reads the suspect

 private:
  const dataset::Dataset& data_;
  const uint64_t suspect_;
};

// Knows what was in hand while several were read, and how they were asked for.
class RowsDataset final : public dataset::DatasetDecorator {
 public:
  RowsDataset(const dataset::Dataset& data, const QuarantineTable& table)
      : DatasetDecorator(data), table_(table) {}
  Status read(uint64_t sample, const dataset::DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    ++one_by_one_;
    return inner().read(sample, draw, outputs);
  }
  dataset::RowsRead read_rows(std::span<const dataset::SampleRead> samples,
                              std::span<const std::span<std::byte>> rows) const override {
    in_hand_ = table_.take_marks(0);
    return inner().read_rows(samples, rows);
  }
  mutable std::vector<uint64_t> in_hand_;
  mutable int one_by_one_ = 0;

 private:
  const QuarantineTable& table_;
};

TEST_F(QuarantineTest, RowsAreMarkedTogetherAndReadOneByOneWhereAnySampleIsSetApart) {
  const RowsDataset watched(*data_, *table_);
  const GuardedDataset guarded(watched, *table_, 0);
  std::vector<std::byte> input(3 * sizeof(float) * 30), label(3 * sizeof(int64_t));
  const std::vector<std::span<std::byte>> rows{input, label};
  const std::vector<dataset::SampleRead> reads{{.sample = 5}, {.sample = 6}, {.sample = 7}};
  EXPECT_EQ(guarded.read_rows(reads, rows).good, 3u);
  EXPECT_THAT(watched.in_hand_, ElementsAre(5, 6, 7));
  EXPECT_EQ(watched.one_by_one_, 0);
  ASSERT_TRUE(table_->suspect(6));
  EXPECT_EQ(guarded.read_rows(reads, rows).good, 3u);
  EXPECT_EQ(watched.one_by_one_, 3);
  EXPECT_FALSE(table_->suspected(6)) << "it came back";
  ASSERT_TRUE(table_->quarantine(6));
  const dataset::RowsRead read = guarded.read_rows(reads, rows);
  EXPECT_EQ(read.good, 1u);
  EXPECT_EQ(read.status.code(), Code::kCorrupt);
}

TEST_F(QuarantineTest, ASuspectIsReadAlone) {
  const WatchedDataset watched(*data_, 7);
  const GuardedDataset guarded(watched, *table_, 0);
  ASSERT_TRUE(table_->suspect(7));
  std::atomic<bool> done{false};
  {
    std::vector<std::jthread> others;
    for (int i = 0; i < 3; ++i)
      others.emplace_back([&] {
        while (!done) {
          EXPECT_TRUE(guarded.read(8, {}, {}).ok());
          std::this_thread::yield();
        }
      });
    EXPECT_TRUE(eventually([&] { return watched.reads_ > 0; }));
    EXPECT_TRUE(guarded.read(7, {}, {}).ok());
    done = true;
  }
  EXPECT_EQ(watched.most_, 1);
}

}  // namespace
}  // namespace stoker::feeder
