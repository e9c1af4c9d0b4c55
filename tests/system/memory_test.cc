// A run does not use more memory after many steps than after a few. Compared are bytes of heap in
// use, which tests/system/heap_probe.cc reports from within stokerd, and private resident memory,
// which includes fragmentation.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

// ---- Judgment

struct MemorySample {
  uint64_t step;
  uint64_t bytes;
};

// By how many bytes the memory in use has grown between the second and the last quarter of the
// samples; the first quarter is warm-up. What is in use only for a moment, such as a batch, a line
// of the log or a snapshot, can only add to a sample: compared are the minima. A leak of n bytes per
// step grows by at least n times the half of the steps. Empty with too few samples.
std::optional<int64_t> growth_of(const std::vector<MemorySample>& samples) {
  constexpr size_t kMinSamples = 20;
  if (samples.size() < kMinSamples || samples.back().step == samples.front().step)
    return std::nullopt;
  const size_t quarter = samples.size() / 4;
  const auto minimum = [&](size_t from, size_t to) {
    uint64_t bytes = samples[from].bytes;
    for (size_t i = from; i < to; ++i) bytes = std::min(bytes, samples[i].bytes);
    return static_cast<int64_t>(bytes);
  };
  return minimum(3 * quarter, samples.size()) - minimum(quarter, 2 * quarter);
}

constexpr int64_t kMaxHeapGrowth = 48 << 10;
constexpr int64_t kMaxResidentGrowth = 512 << 10;

// A series like that of a run with a sample every 100 steps: buffers that grow during warm-up,
// memory in use for a moment, and a leak.
std::vector<MemorySample> made_up_series(uint64_t steps, uint64_t leak_per_step) {
  std::vector<MemorySample> samples;
  for (uint64_t step = 100; step <= steps; step += 100) {
    const uint64_t warm_up = std::min<uint64_t>(step * 1000, 2 << 20);
    const uint64_t in_use_briefly = step % 700 * 900 + (step % 1000 == 0 ? 400'000 : 0);
    samples.push_back({step, (60 << 20) + warm_up + in_use_briefly + leak_per_step * step});
  }
  return samples;
}

TEST(MemoryGrowthTest, IgnoresWarmUpAndMemoryInUseBriefly) {
  for (const uint64_t steps : {20'000u, 100'000u}) {
    const auto growth = growth_of(made_up_series(steps, 0));
    ASSERT_TRUE(growth.has_value());
    EXPECT_LE(*growth, kMaxHeapGrowth) << steps << " steps";
  }
}

TEST(MemoryGrowthTest, FindsLeakOfSixteenBytesPerStep) {
  for (const uint64_t steps : {20'000u, 100'000u}) {
    const auto growth = growth_of(made_up_series(steps, 16));
    ASSERT_TRUE(growth.has_value());
    EXPECT_GT(*growth, kMaxHeapGrowth) << steps << " steps";
  }
  EXPECT_GT(growth_of(made_up_series(100'000, 16)).value_or(0), kMaxResidentGrowth);
}

TEST(MemoryGrowthTest, IsUnknownWithFewSamples) {
  EXPECT_EQ(growth_of({}), std::nullopt);
  EXPECT_EQ(growth_of(made_up_series(1500, 0)), std::nullopt);
  EXPECT_EQ(growth_of(std::vector<MemorySample>(100, {7, 60})), std::nullopt)
      << "no step was taken";
}

// ---- Measurement

// The library that is preloaded into the processes started while this object exists.
class HeapProbe {
 public:
  explicit HeapProbe(const std::string& folder) {
    const std::string paths[] = {folder + "/heap_commands", folder + "/heap_answers"};
    int* const fds[] = {&commands_, &answers_};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(::mkfifo(paths[i].c_str(), 0600), 0) << paths[i];
      *fds[i] = ::open(paths[i].c_str(), O_RDWR | O_CLOEXEC);
      EXPECT_GE(*fds[i], 0) << paths[i];
    }
    ::setenv("HEAP_PROBE", (paths[0] + " " + paths[1]).c_str(), 1);
    ::setenv("LD_PRELOAD", STOKER_HEAP_PROBE, 1);
    // mallinfo2() counts blocks that a thread has freed into its cache as in use.
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
  }
  ~HeapProbe() {
    for (const char* const name : {"LD_PRELOAD", "HEAP_PROBE", "GLIBC_TUNABLES"}) ::unsetenv(name);
    ::close(commands_);
    ::close(answers_);
  }
  HeapProbe(const HeapProbe&) = delete;
  HeapProbe& operator=(const HeapProbe&) = delete;

  // Bytes of heap in use by the process, after it has leaked this number of blocks. 0: no
  // answer.
  uint64_t bytes_in_use(uint64_t leaked_blocks) const {
    if (::write(commands_, &leaked_blocks, sizeof leaked_blocks) != ssize_t{sizeof leaked_blocks})
      return 0;
    pollfd answer{answers_, POLLIN, 0};
    uint64_t bytes = 0;
    if (::poll(&answer, 1, 60'000) != 1) return 0;
    return ::read(answers_, &bytes, sizeof bytes) == ssize_t{sizeof bytes} ? bytes : 0;
  }

 private:
  int commands_ = -1;
  int answers_ = -1;
};

uint64_t resident_bytes(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; in >> word;) {
    uint64_t kib = 0;
    if (word == "RssAnon:" && in >> kib) return kib << 10;
  }
  return 0;
}

class MemoryUsageTest : public RunTest {
 protected:
  struct Series {
    std::vector<MemorySample> heap;
    std::vector<MemorySample> resident;
  };
  // Samples memory with each new record until the run has taken `steps` more steps and there are
  // enough samples; a busy disk delays records. For each step, the process leaks `leaked_blocks`.
  Series measure(const Process& trainer, const HeapProbe& probe, uint64_t steps,
                 uint64_t leaked_blocks) const {
    Series series;
    const uint64_t first = newest_record_step(run_dir());
    uint64_t last = first;
    EXPECT_TRUE(wait_until(
        4min,  // ctest ends the test after 5
        [&] {
          const uint64_t step = newest_record_step(run_dir());
          if (step > last) {
            series.heap.push_back({step, probe.bytes_in_use(leaked_blocks * (step - last))});
            series.resident.push_back({step, resident_bytes(trainer.pid())});
            EXPECT_GT(series.heap.back().bytes, 0u) << "the probe does not answer";
            EXPECT_GT(series.resident.back().bytes, 1u << 20);
            last = step;
          }
          return (last >= first + steps && series.heap.size() >= 40) || HasFailure();
        }))
        << "after step " << last;
    return series;
  }
};

TEST_F(MemoryUsageTest, DoesNotIncreaseWithNumberOfSteps) {
  const uint64_t steps = is_full_test() ? 100'000 : 20'000;
  const std::string config = write_config(small_config());
  const HeapProbe probe(folder_);
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=100000000", "--set", "metrics.log_every_steps=100", "--set",
       "checkpoint.save_every_steps=1000", "--set", "metrics.tensorboard=true"});
  const Series normal = measure(trainer, probe, steps, 0);
  ASSERT_FALSE(HasFailure());
  const Series leaking = measure(trainer, probe, steps / 4, 1);
  trainer.signal(SIGTERM);
  ASSERT_TRUE(trainer.wait(60s).has_value());

  const auto heap = growth_of(normal.heap);
  const auto resident = growth_of(normal.resident);
  const auto injected = growth_of(leaking.heap);
  ASSERT_TRUE(heap && resident && injected) << "too few records were seen";
  std::cout << "memory: " << steps << " steps, heap in use " << normal.heap.back().bytes / 1024
            << " KiB, grown by " << *heap << " bytes, resident by " << *resident
            << " bytes; with a leak of 16 bytes per step for " << steps / 4
            << " steps, heap grown by " << *injected << " bytes\n";
  EXPECT_LE(*heap, kMaxHeapGrowth) << "after " << steps << " steps";
  EXPECT_LE(*resident, kMaxResidentGrowth) << "after " << steps << " steps";
  EXPECT_GT(*injected, kMaxHeapGrowth) << "the injected leak was not found";
}

}  // namespace
}  // namespace stoker::test
