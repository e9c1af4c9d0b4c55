// A batch that passed the check stays valid, whatever is written to its slot. Without LibTorch, so
// also with the sanitizers; slot_writer_test.cc trains.
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "shared/config/training_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/worker_pool.h"
#include "tests/hostile/hostile_time.h"
#include "tests/hostile/slot_writer.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/temporary_directory.h"

namespace stoker::hostile {
namespace {

using namespace std::chrono_literals;

class SlotCopyTest : public ::testing::TestWithParam<TaskSetup> {
 protected:
  const test::TemporaryDirectory folder_;
};

TEST_P(SlotCopyTest, KeepsCheckedBatchValidWhenSlotIsOverwritten) {
  const config::Config config = GetParam().config(folder_.path());
  const auto data = data::pipeline::open_dataset("train", config.data, folder_ / "index", {});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const data::order::SamplePlan plan(*feed::make_plan_options(config, **data, {}));
  const auto opened =
      ring::ShmRing::create(ring::BatchLayout((*data)->spec(), plan.options().batch), {.slots = 4});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  ring::ShmRing& ring = **opened;
  const ring::RingView view(ring);
  feed::WorkerPool pool(ring, *ring.add_producer("pool"), **data, plan);
  Coordinator coordinator;
  pool.start(1, coordinator);
  feed::BatchReceiver receiver(ring.layout(), ring.layout(), ring.slots());
  const auto limits =
      data::record::LabelRangeCheck::of(config, (*data)->spec(), (*data)->classes());
  EXPECT_EQ(limits.any(), GetParam().has_integers);
  const SlotWriter writer(ring);
  uint64_t valid = 0;
  const auto end = end_of_test(200ms, 10s);
  for (int round = 0; std::chrono::steady_clock::now() < end || valid < 3; ++round) {
    ASSERT_TRUE(valid > 0 || round < 1000) << "no batch is valid";
    const auto ready = ring.pop(test::scaled(60s));
    ASSERT_TRUE(ready.ok()) << ready.status().to_string();
    const feed::ReceivedBatch batch = receiver.receive(*ready);
    if (limits.check_rows(batch.tensors, ring.layout().batch()).status.ok()) {
      ++valid;
      overwrite_integers(view, ring.layout(), batch.ticket);
      const Status again = limits.check_rows(batch.tensors, ring.layout().batch()).status;
      ASSERT_TRUE(again.ok()) << again.to_string();
    }
    ring.release(batch.ticket);
  }
  ring.close();
  coordinator.request_stop();
  EXPECT_TRUE(coordinator.join(test::scaled(60s)).ok());
}

TEST(AllTasksTest, IncludesEachTask) {
  std::set<std::string> names;
  for (const TaskSetup& setup : all_tasks()) names.insert(setup.task);
  names.insert("custom");  // has the data of any other
  for (const std::string_view task : config::kWords<config::TaskName>)
    EXPECT_TRUE(names.contains(std::string(task))) << task;
}

INSTANTIATE_TEST_SUITE_P(EachTask, SlotCopyTest, ::testing::ValuesIn(all_tasks()),
                         [](const auto& test) { return test.param.task; });

}  // namespace
}  // namespace stoker::hostile
