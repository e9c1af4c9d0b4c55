#include "daemon/group/flight_recorder.h"

#include <semaphore>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/forwarding_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

// As a network file system whose server does not respond.
class HungFiles final : public test::ForwardingFiles {
 public:
  Result<UniqueFd> open(const std::string&, int, mode_t) override {
    std::binary_semaphore never(0);
    never.acquire();
    return UniqueFd();
  }
};

class FlightRecorderTest : public testing::Test {
 protected:
  // The line of the rank, and those of collectives.
  std::vector<json::object> lines(const std::string& reason = "test") const {
    std::istringstream text(recorder_.to_jsonl(reason));
    std::vector<json::object> parsed;
    for (std::string line; std::getline(text, line);)
      parsed.push_back(json::parse(line).as_object());
    return parsed;
  }

  const test::TemporaryDirectory directory_;
  ManualClock clock_;
  FlightRecorder recorder_{
      {.rank = 2, .world_size = 4, .path = directory_ / "flight_recorder.jsonl"}, clock_};
};

TEST_F(FlightRecorderTest, HasEachCollectiveWithSizesStepTimesAndState) {
  (void)recorder_.start("broadcast");
  recorder_.complete(1);
  recorder_.begin_step(7);
  CollectiveSizes sizes;
  sizes.add(10, 40);
  sizes.add(3, 24);
  clock_.advance(1s);
  EXPECT_EQ(recorder_.start("all_reduce_ordered", sizes), 2u);
  clock_.advance(1500us);
  recorder_.complete(2);
  EXPECT_EQ(recorder_.start("all_gather", sizes), 3u);
  clock_.advance(2s);

  const auto found = lines("rank 1 exited");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].at("rank"), 2);
  EXPECT_EQ(found[0].at("world_size"), 4);
  EXPECT_EQ(found[0].at("reason"), "rank 1 exited");
  EXPECT_EQ(found[0].at("written_at"), "1970-01-01T00:00:03.001Z");
  EXPECT_EQ(found[0].at("collectives"), 3);
  EXPECT_EQ(found[1].at("operation"), "broadcast");
  EXPECT_EQ(found[1].at("step"), 0);
  EXPECT_EQ(json::serialize(found[2]),
            R"({"sequence":2,"operation":"all_reduce_ordered","step":7,"state":"completed",)"
            R"("started_at":"1970-01-01T00:00:01.000Z","tensors":2,"bytes":64,"sizes":[10,3],)"
            R"("completed_at":"1970-01-01T00:00:01.001Z","duration_ms":1.5E0})");
  EXPECT_EQ(found[3].at("state"), "started");
  EXPECT_FALSE(found[3].contains("completed_at"));
}

TEST_F(FlightRecorderTest, KeepsLastCollectives) {
  const uint64_t total = 3 * FlightRecorder::kCapacity / 2;
  for (uint64_t i = 1; i <= total; ++i) {
    recorder_.begin_step(i);
    EXPECT_EQ(recorder_.start("all_reduce"), i);
    recorder_.complete(i);
  }
  const auto found = lines();
  ASSERT_EQ(found.size(), 1 + FlightRecorder::kCapacity);
  EXPECT_EQ(found[0].at("collectives"), total);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(found[i].at("sequence"), total - FlightRecorder::kCapacity + i);
    EXPECT_EQ(found[i].at("step"), total - FlightRecorder::kCapacity + i);
  }
}

// As a sum that ends after more others than there is room for.
TEST_F(FlightRecorderTest, CountsStartsAndEnds) {
  EXPECT_EQ(recorder_.num_events(), 0u);
  (void)recorder_.start("all_reduce");
  EXPECT_EQ(recorder_.num_events(), 1u);
  recorder_.complete(1);
  EXPECT_EQ(recorder_.num_events(), 2u);
  (void)recorder_.start("all_gather");
  EXPECT_EQ(recorder_.num_events(), 3u);
}

TEST_F(FlightRecorderTest, IgnoresEndOfCollectiveThatIsNotRecordedAnyMore) {
  (void)recorder_.start("all_reduce");
  for (size_t i = 0; i < FlightRecorder::kCapacity; ++i) (void)recorder_.start("all_gather");
  recorder_.complete(1);
  const auto found = lines();
  for (size_t i = 1; i < found.size(); ++i) EXPECT_EQ(found[i].at("state"), "started");
}

TEST_F(FlightRecorderTest, ListsFirstSizesOfManyTensors) {
  CollectiveSizes sizes;
  for (int i = 1; i <= 100; ++i) sizes.add(i, 4);
  (void)recorder_.start("all_reduce_ordered", sizes);
  const json::object line = lines().at(1);
  EXPECT_EQ(line.at("tensors"), 100);
  EXPECT_EQ(line.at("bytes"), 400);
  EXPECT_EQ(json::serialize(line.at("sizes")), "[1,2,3,4,5,6,7,8]");
}

TEST_F(FlightRecorderTest, ReplacesFile) {
  (void)recorder_.start("broadcast");
  ASSERT_TRUE(recorder_.write(default_file_system(), "first").ok());
  ASSERT_TRUE(recorder_.write(default_file_system(), "second").ok());
  const auto text = read_file(recorder_.path(), 1 << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, recorder_.to_jsonl("second"));
  EXPECT_EQ(list_directory(directory_.path())->size(), 1u) << "temporary files";
}

TEST_F(FlightRecorderTest, WaitsOnlySoLongForStorage) {
  static auto& files = *new HungFiles;  // not destroyed: its thread stays
  EXPECT_EQ(recorder_.write(files, "hung", 1ms).code(), StatusCode::kTimedOut);
}

TEST_F(FlightRecorderTest, ReportsStorageThatFails) {
  const FlightRecorder recorder({.rank = 0, .world_size = 2, .path = directory_ / "none/file"});
  EXPECT_EQ(recorder.write(default_file_system(), "test").code(), StatusCode::kNotFound);
}

TEST_F(FlightRecorderTest, KeepsOneFileOfEarlierStarts) {
  const std::string previous = recorder_.path() + ".previous";
  ASSERT_TRUE(recorder_.write(default_file_system(), "test").ok());
  set_aside_flight_record(default_file_system(), recorder_.path());
  EXPECT_FALSE(read_file(recorder_.path(), 1 << 20).ok());
  EXPECT_EQ(*read_file(previous, 1 << 20), recorder_.to_jsonl("test"));
  set_aside_flight_record(default_file_system(), recorder_.path());
  EXPECT_FALSE(read_file(previous, 1 << 20).ok()) << "of the start before the last one";
  set_aside_flight_record(default_file_system(), recorder_.path());
  EXPECT_TRUE(list_directory(directory_.path())->empty());
}

}  // namespace
}  // namespace stoker::group
