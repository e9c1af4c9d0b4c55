// A step that does not fit into memory, with the real allocator under a real limit, and a worker process that does not.
#include <signal.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/image/image_files.h"
#include "tests/support/own_cgroup.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// Only the process, which is in a group with a limit that its next image exceeds, not the run.
TEST_F(OutOfMemoryTest, ReplacesWorkerAfterOomKillAndLosesNoSample) {
  const auto group = OwnCgroup::with_memory(uint64_t{2} << 20);
  if (!group.is_ready()) GTEST_SKIP() << "a control group with a memory limit cannot be created";
  std::filesystem::create_directories(path("images/a"));
  std::filesystem::create_directories(path("images/b"));
  for (int i = 0; i < 12; ++i)
    std::ofstream(path("images/") + (i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".jpg",
                  std::ios::binary)
        << image::testing::encode_jpeg(image::testing::gradient(1200 + i, 1200, 3),
                                       {.quality = 50, .progressive = true});
  const std::string config = write_config(
      "data:\n  train: {format: image_folder, path: " + path("images") +
      ", transforms: [resize: {size: [8, 8]}]}\n"
      "model: {name: mlp, hidden_sizes: [8]}\ntask: {name: classification}\n"
      "eval: {datasets: []}\nmetrics: {tensorboard: false, log_every_steps: 1}\n"
      "feed: {num_workers: 2, num_processes: 2, prefetch_batches: 2}\n"
      "scheduler: {name: constant}\n"
      "train: {max_steps: 1000000, device: cpu, num_threads: 1, micro_batch_size: 2}\n");
  // The buffers of each image are mapped again, so they count for the group.
  Process trainer({"/usr/bin/env", "MALLOC_MMAP_THRESHOLD_=65536", program("stokerd"), "--config",
                   config, "--run-dir", run_dir()},
                  path("disturbed.out"));
  std::vector<pid_t> workers;
  ASSERT_TRUE(wait_until(kPatience, [&] {
    workers = children_of(trainer.pid(), "stoker-feed");
    return workers.size() == 2 && num_records(run_dir()) > 0;
  })) << text_of(path("disturbed.out"));
  ASSERT_TRUE(group.add(workers[0]));
  const std::string log_file = run_dir() + "/logs/stokerd.log";
  ASSERT_TRUE(wait_until(kPatience, [&] {
    return count_of(text_if_exists(log_file), "worker process crashed") > 0;
  })) << text_of(log_file);
  // More than can have been in the ring and prefetched, so some are of the replacement, too.
  const size_t records = num_records(run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return num_records(run_dir()) >= records + 20; }));
  trainer.signal(SIGTERM);
  const auto end = trainer.wait(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << text_of(log_file);
  EXPECT_EQ(group.oom_kills(), 1u);
  const std::string log = text_of(log_file);
  EXPECT_EQ(count_of(log, "worker process crashed"), 1u) << log;
  EXPECT_THAT(log, HasSubstr("warning worker process crashed cause=\"signal 9 (Killed)"));
  EXPECT_THAT(log, Not(HasSubstr("quarantined")));
  EXPECT_FALSE(std::filesystem::exists(run_dir() + "/sample_errors.jsonl"));
  const std::string steps = std::to_string(newest_step(run_dir()));
  ASSERT_EQ(train(config, run_dir("undisturbed"), {"--set", "train.max_steps=" + steps}).code, 0)
      << log_of("stokerd");
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("undisturbed")));
  expect_same_checkpoint(run_dir(), run_dir("undisturbed"),
                         {"model.safetensors", "optimizer.safetensors"});
}

TEST_F(OutOfMemoryTest, ExitsWith71AndHintsAtFirstStep) {
  EXPECT_EQ(train_with_memory_limit(config("100000"), {}).code, 71);
  EXPECT_THAT(
      text_of(run_dir() + "/logs/stokerd.log"),
      AllOf(HasSubstr("out of memory: step 1: "), HasSubstr("tried to allocate"),
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
