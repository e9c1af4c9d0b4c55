// Overwrites the atomic fields of a ring that worker processes fill. Either all batches arrive
// unchanged and in order, or the run ends with an error that names the cause, and it never hangs.
// hostile_run_test.cc does the same with stokerd; this one also runs with the sanitizers.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/hostile/hostile_time.h"
#include "tests/hostile/ring_fields.h"

namespace stoker::supervisor {
namespace {

using hostile::RingField;
using ring::RingView;

constexpr uint64_t kSlots = 4;
constexpr uint64_t kEnd = 24;  // tickets
const auto kWorkerTimeout = test::scaled(1500ms);
// Two timeouts, and time for a busy machine to start and end processes.
const auto kMaxIdle = 2 * kWorkerTimeout + test::scaled(30s);

std::string describe(const RingView& view) {
  std::string text = "slot words";
  for (uint64_t slot = 0; slot < kSlots; ++slot)
    text += ' ' + std::to_string(std::atomic_ref(view.slot_word(slot)).load());
  for (uint32_t i = 0; i < 3; ++i)
    text += "; producer word " + std::to_string(std::atomic_ref(view.producer(i).word).load()) +
            " polls " + std::to_string(std::atomic_ref(view.producer(i).polls).load()) +
            " samples " + std::to_string(std::atomic_ref(view.producer(i).samples).load());
  return text;
}

class RingFuzzTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    clock_ = &system_clock();
    options_.feed_program = FEED_PROGRAM;
    options_.feed.num_processes = 2;
    options_.feed.worker_timeout_seconds = std::chrono::duration<double>(kWorkerTimeout).count();
    options_.sample_error_path.clear();
    write_config("{format: synthetic, num_samples: 500, input_shape: [3, 10], num_classes: 4}");
  }

  // Overwrites one of `fields` before each of the first `writes` batches, and expects the right
  // batches or a true reason. Returns whether all batches arrived.
  bool run(const std::vector<RingField>& fields, uint64_t writes) {
    Coordinator coordinator;
    open_ring({.slots = kSlots, .end_ticket = kEnd});
    const RingView view(*ring_);
    FeedSupervisor supervisor(options_, *ring_, data_.get(), *plan_, coordinator, *clock_);
    Status status = supervisor.start();
    wrong_batches_ = 0;
    if (status.ok()) status = consume(coordinator, view, fields, writes);
    supervisor.stop();
    coordinator.request_stop();
    const Status joined = coordinator.join(kTestTimeout);
    if (status.ok()) status = joined;
    if (status.ok()) {
      EXPECT_EQ(wrong_batches_, 0u);
    } else {
      expect_true_reason(status, fields);
    }
    return status.ok();
  }

  // As the trainer does.
  Status consume(Coordinator& coordinator, const RingView& view,
                 const std::vector<RingField>& fields, uint64_t writes) {
    auto last = std::chrono::steady_clock::now();
    for (uint64_t ticket = 0; ticket < kEnd;) {
      if (ticket > 0 && writes > 0) {
        --writes;
        fields[random_() % fields.size()].overwrite(view, random_);
      }
      const auto batch = ring_->pop(20ms);
      if (coordinator.should_stop()) return coordinator.reason();
      if (batch.ok()) {
        if (batch->ticket != ticket || !is_expected(*batch)) ++wrong_batches_;
        ring_->release(ticket++);
        last = std::chrono::steady_clock::now();
      } else if (batch.status().code() != StatusCode::kTimedOut) {
        return batch.status();
      } else if (std::chrono::steady_clock::now() - last > kMaxIdle) {
        ADD_FAILURE() << "hangs at ticket " << ticket << ": " << describe(view);
        return Status(StatusCode::kTimedOut, "it hangs");
      }
    }
    return {};
  }
  bool is_expected(const ring::ReadyBatch& batch) const {
    const std::vector<std::byte> expected = expected_batch(batch.ticket);
    for (size_t i = 0; i < ring_->layout().sample().size(); ++i)
      if (!std::ranges::equal(ring_->layout().tensor_bytes(batch.slot, i),
                              ring_->layout().tensor_bytes(expected, i)))
        return false;
    return true;
  }

  // The ring, a worker that exited because of it, or reports that no producer made.
  static void expect_true_reason(const Status& status, const std::vector<RingField>& fields) {
    EXPECT_NE(exit_code_for(status), ExitCode::kSuccess);
    const auto says = [&](const char* text) {
      return status.message().find(text) != std::string::npos;
    };
    const bool has_reports = std::ranges::any_of(
        fields, [](const RingField& field) { return field.use == RingField::Use::kReport; });
    EXPECT_TRUE(says("overwrote the ring") || says("worker processes crash repeatedly") ||
                says("worker processes fail repeatedly") || (has_reports && says("cannot be read")))
        << status.to_string();
  }

  hostile::Random random_ = hostile::make_random();
  uint64_t wrong_batches_ = 0;
};

TEST_F(RingFuzzTest, DeliversBatchesOrTrueReasonForEachField) {
  for (const RingField& field : hostile::all_fields()) {
    SCOPED_TRACE(field.name);
    const bool is_complete = run({field}, 2);
    EXPECT_TRUE(is_complete || field.use != RingField::Use::kHint);
    if (HasFailure()) return;
  }
}

TEST_F(RingFuzzTest, DeliversBatchesOrTrueReasonForSeveralFields) {
  const std::vector<RingField> fields = hostile::all_fields();
  const auto end = hostile::end_of_test(3s, 90s);
  uint64_t runs = 0, complete = 0;
  for (; std::chrono::steady_clock::now() < end || runs < 3 || complete == 0; ++runs) {
    ASSERT_TRUE(complete > 0 || runs < 300) << "each run failed";
    complete += run(fields, 1 + random_() % 30) ? 1 : 0;
    if (HasFailure()) return;
  }
  std::printf("%d of %d runs delivered all batches\n", static_cast<int>(complete),
              static_cast<int>(runs));
}

}  // namespace
}  // namespace stoker::supervisor
