// The producers in docs/examples as processes.
#include <cstring>

#include "tests/daemon/supervisor/producer_fixture.h"

namespace stoker::supervisor {
namespace {

class RingProducerTest : public ProducerProcessTest,
                         public ::testing::WithParamInterface<Language> {
 protected:
  void SetUp() override {
    if (GetParam() == Language::kPython && !python_can_attach())
      GTEST_SKIP() << "no python3 with socket.recv_fds and libatomic";
    ProducerProcessTest::SetUp();
  }
  pid_t run_example() {
    if (GetParam() == Language::kCpp) return run({RING_PRODUCER, directory_.path()});
    return run({"python3", EXAMPLES "/ring_producer.py", directory_.path()});
  }
};

TEST_P(RingProducerTest, FillsRingToEndAfterAnotherProducerIsKilled) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .end_ticket = 40}));
  const pid_t first = run_example();
  std::vector<std::vector<std::byte>> batches;
  const auto take = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const auto batch = ring_->pop(kTestTimeout);
      ASSERT_TRUE(batch.ok()) << batch.status().to_string();
      ASSERT_EQ(batch->ticket, batches.size());
      batches.emplace_back(batch->slot.begin(), batch->slot.end());
      ring_->release(batch->ticket);
    }
  };
  ASSERT_NO_FATAL_FAILURE(take(10));
  ::kill(first, SIGKILL);
  const pid_t second = run_example();
  ASSERT_NO_FATAL_FAILURE(take(30));
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  const int status = wait_for_exit(second);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // Its samples: a label and an input derived from it.
  const auto& layout = ring_->layout();
  for (const auto& batch : batches)
    for (uint64_t row = 0; row < kBatch; ++row) {
      int64_t label = -1;
      float input[30];
      std::memcpy(&label, batch.data() + layout.offset(1) + row * sizeof label, sizeof label);
      std::memcpy(input, batch.data() + layout.offset(0) + row * sizeof input, sizeof input);
      ASSERT_TRUE(label == 0 || label == 1) << label;
      float mean = 0;
      for (const float value : input) mean += value / 30;
      ASSERT_NEAR(mean, static_cast<float>(label), 0.5f);
    }
}

TEST_P(RingProducerTest, ExitsWithErrorWhenAttachIsDenied) {
  options_.feed.producers = config::ProducerMode::kInternal;
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4}));
  const int status = wait_for_exit(run_example());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

INSTANTIATE_TEST_SUITE_P(, RingProducerTest, ::testing::Values(Language::kCpp, Language::kPython),
                         to_string);

}  // namespace
}  // namespace stoker::supervisor
