// A run does not use more memory after many steps than after a few.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class MemoryUsageTest : public RunTest {};

uint64_t anonymous_kib(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; in >> word;) {
    uint64_t kib = 0;
    if (word == "RssAnon:" && in >> kib) return kib;
  }
  return 0;
}

uint64_t last_step(const std::string& run) {
  std::ifstream in(run + "/metrics/train.jsonl");
  uint64_t step = 0;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("{\"step\":")) step = std::strtoull(line.c_str() + 8, nullptr, 10);
  return step;
}

// scripts/fault_tests.sh runs 100,000 steps, a normal test run fewer.
uint64_t steps_to_take() {
  const char* const mode = std::getenv("STOKER_FAULT_TESTS");
  return mode != nullptr && std::string(mode) == "full" ? 100'000 : 20'000;
}

TEST_F(MemoryUsageTest, DoesNotIncreaseWithNumberOfSteps) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=100000000", "--set", "metrics.log_every_steps=100", "--set",
       "checkpoint.save_every_steps=1000", "--set", "metrics.tensorboard=true"});
  const uint64_t steps = steps_to_take();
  ASSERT_TRUE(wait_until(120s, [&] { return last_step(run_dir()) >= steps / 4; }));
  const uint64_t early = anonymous_kib(trainer.pid());
  ASSERT_TRUE(wait_until(240s, [&] { return last_step(run_dir()) >= steps; }));
  const uint64_t late = anonymous_kib(trainer.pid());
  trainer.signal(SIGTERM);
  ASSERT_TRUE(trainer.wait(60s).has_value());
  ASSERT_GT(early, 1024u);
  RecordProperty("early_kib", static_cast<int>(early));
  RecordProperty("late_kib", static_cast<int>(late));
  // A leak of one byte per step would be 0.1 MiB; the margin covers memory that the allocator holds
  // per thread.
  EXPECT_LE(late, early + 2048) << "after " << steps << " steps";
}

}  // namespace
}  // namespace stoker::test
