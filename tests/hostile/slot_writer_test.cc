// Every task trains, with the engine of the CPU and with that of a device, while a thread changes
// the labels, tokens and lengths in the slots, and the whole slot after each check. What was
// checked must be exactly what the task gets.
#include "tests/hostile/slot_writer.h"

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/app/validate_batch.h"
#include "daemon/train/cpu_engine.h"
#include "daemon/train/device_engine.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/hostile/hostile_time.h"

namespace stoker::hostile {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using train::Session;
using train::StepEngine;

enum class Engine { kCpu, kDevice };

class SlotWriterTest : public train::TrainerTest,
                       public ::testing::WithParamInterface<std::tuple<TaskSetup, Engine>> {
 protected:
  // Trains until the end, or until a batch is invalid. Returns the number of steps.
  uint64_t train_until_invalid() {
    Session run(
        config_, fresh(), train::kNoPoison,
        {.make_engine = [this](StepEngine::Calls calls) { return make_engine(std::move(calls)); }});
    ring_ = run.ring_.get();
    const ring::RingView view(*ring_);
    const auto validate = app::validate_batch(config_, run.data_->info());
    run.is_valid = [&](const feed::ReceivedBatch& batch) {
      if (validate && !validate(batch).ok()) return false;
      for (const size_t i : integer_tensors(batch.layout))
        checked_[i].assign(batch.tensors[i].begin(), batch.tensors[i].end());
      overwrite_integers(view, ring_->layout(), batch.ticket);
      return true;
    };
    const SlotWriter writer(*ring_);
    const auto outcome = run.train();
    // Numbers are not protected; labels of ctc and lengths are also checked with the model's
    // outputs.
    if (!outcome.ok()) {
      EXPECT_THAT(outcome.status().message(),
                  AnyOf(HasSubstr("finite"), HasSubstr("task ctc: labels must be")));
    }
    return run.state_->step;
  }

  Result<std::unique_ptr<StepEngine>> make_engine(StepEngine::Calls calls) {
    calls.prepare = [this, prepare = std::move(calls.prepare)](task::Batch batch, uint64_t ticket,
                                                               train::MicroBatchInfo micro_batch) {
      for (const auto& [i, bytes] : checked_)
        EXPECT_EQ(std::memcmp(batch.at(i).data_ptr(), bytes.data(), bytes.size()), 0)
            << ring_->layout().sample()[i].name << " changed after the check";
      return prepare(std::move(batch), ticket, micro_batch);
    };
    if (std::get<Engine>(GetParam()) == Engine::kCpu)
      return std::unique_ptr<StepEngine>(std::make_unique<train::CpuEngine>(std::move(calls)));
    const auto log = std::make_shared<train::FakeQueue::Log>();
    log->copies_are_slow = true;
    return std::unique_ptr<StepEngine>(std::make_unique<train::DeviceEngine>(
        std::make_unique<train::FakeQueue>(log, ring_->layout().slot_bytes()),
        std::vector<std::unique_ptr<train::PinnedMemory>>(),
        train::DeviceEngineOptions{.slots = ring_->slots()}, std::move(calls)));
  }

  const config::Config config_ = std::get<TaskSetup>(GetParam()).config(fresh());
  const ring::ShmRing* ring_ = nullptr;
  std::map<size_t, std::vector<std::byte>> checked_;  // the integers of the last batch, by tensor
};

TEST_P(SlotWriterTest, TrainsOnlyOnCheckedValues) {
  const auto end = end_of_test(300ms, 10s);
  uint64_t steps = 0;
  while (!HasFailure() && (std::chrono::steady_clock::now() < end || steps == 0))
    steps += train_until_invalid();
  EXPECT_EQ(checked_.empty(), !std::get<TaskSetup>(GetParam()).has_integers);
}

INSTANTIATE_TEST_SUITE_P(EachTask, SlotWriterTest,
                         ::testing::Combine(::testing::ValuesIn(all_tasks()),
                                            ::testing::Values(Engine::kCpu, Engine::kDevice)),
                         [](const auto& test) {
                           return std::get<TaskSetup>(test.param).task +
                                  (std::get<Engine>(test.param) == Engine::kCpu ? "_cpu"
                                                                                : "_device");
                         });

}  // namespace
}  // namespace stoker::hostile
