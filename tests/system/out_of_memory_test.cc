// A step that does not fit into memory, with the real allocator under a real limit.
#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/own_cgroup.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLimitKib = "1048576";

class OutOfMemoryTest : public RunTest {
 protected:
  std::string config(const std::string& batch) const {
    return write_config(R"(
data: {train: {format: synthetic, num_samples: 400, input_shape: [8], num_targets: 2}}
model: {name: mlp, hidden_sizes: [4096]}
task: {name: regression}
eval: {datasets: []}
metrics: {tensorboard: false}
train: {max_steps: 20, device: cpu, num_threads: 1, micro_batch_size: )" +
                        batch + "}\n");
  }
  // Runs stokerd after a command of the shell that limits its memory to less than the 1.6 GB that the
  // activations of 100000 samples take.
  Exit train_after(const std::string& limit, const std::string& config,
                   const std::vector<std::string>& more) const {
    Process limited(joined({"/bin/sh", "-c", limit + "; exec \"$@\"", "sh", program("stokerd"),
                            "--config", config, "--run-dir", run_dir()},
                           more),
                    path("limited.out"));
    const auto exit = limited.wait(kPatience);
    EXPECT_TRUE(exit.has_value()) << "it did not end";
    return exit.value_or(Exit{.code = -1});
  }
  Exit train_with_memory_limit(const std::string& config,
                               const std::vector<std::string>& more) const {
    return train_after(std::string("ulimit -d ") + kLimitKib, config, more);
  }
};

TEST_F(OutOfMemoryTest, ResumesFromCheckpointAfterOomKill) {
  const auto group = OwnCgroup::with_memory(uint64_t{1} << 30);
  if (!group.is_ready()) GTEST_SKIP() << "a control group with a memory limit cannot be created";
  const auto train_in_group = [&](const std::string& batch, const std::vector<std::string>& more) {
    return train_after("echo $$ >" + group.processes_file(), config(batch), more);
  };
  ASSERT_EQ(train_in_group("8", {}).code, 0) << text_of(path("limited.out"));
  ASSERT_EQ(newest_step(run_dir()), 20u);
  const std::vector<std::string> more_steps{"--set", "train.max_steps=40", "--allow-batch-change"};
  const Exit killed = train_in_group("100000", more_steps);
  EXPECT_EQ(killed.signal, SIGKILL) << killed.code << text_of(path("limited.out"));
  EXPECT_EQ(newest_step(run_dir()), 20u);
  EXPECT_EQ(ctl(run_dir(), {"verify"}, "verify").wait(kPatience)->code, 0);
  EXPECT_EQ(train_in_group("8", more_steps).code, 0) << text_of(path("limited.out"));
  EXPECT_EQ(newest_step(run_dir()), 40u);
}

TEST_F(OutOfMemoryTest, ExitsWith71AndHintsAtFirstStep) {
  EXPECT_EQ(train_with_memory_limit(config("100000"), {}).code, 71);
  EXPECT_THAT(
      text_of(run_dir() + "/logs/stokerd.log"),
      AllOf(HasSubstr("step 1: out of memory: "), HasSubstr("tried to allocate"),
            HasSubstr("train.micro_batch_size: 50000 with train.gradient_accumulation_steps: 2")));
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

TEST_F(OutOfMemoryTest, PreservesLastCheckpointAtLaterStep) {
  ASSERT_EQ(train_with_memory_limit(config("8"), {}).code, 0) << text_of(path("limited.out"));
  ASSERT_EQ(newest_step(run_dir()), 20u);
  EXPECT_EQ(train_with_memory_limit(config("100000"),
                                    {"--set", "train.max_steps=40", "--allow-batch-change"})
                .code,
            71);
  EXPECT_EQ(newest_step(run_dir()), 20u);
  EXPECT_EQ(ctl(run_dir(), {"verify"}, "verify").wait(30s)->code, 0);
}

}  // namespace
}  // namespace stoker::test
