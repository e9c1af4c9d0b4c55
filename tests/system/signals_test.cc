// The programs while idle, and on repeated stop signals.
#include <signal.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/image/image_files.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class SignalHandlingTest : public RunTest {};
class IdleCpuTimeTest : public RunTest {};

// CPU time of all threads of a process.
std::chrono::nanoseconds processor_time(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  EXPECT_EQ(::clock_getcpuclockid(pid, &clock), 0);
  EXPECT_EQ(::clock_gettime(clock, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST_F(SignalHandlingTest, ExitsImmediatelyWith143OnSecondSigterm) {
  // One step takes seconds, so that the second signal arrives during a step.
  const std::string config = write_config(text_config());
  Process trainer =
      this->trainer(config, run_dir(),
                    {"--set", "model.embed_dim=512", "--set", "model.num_layers=8", "--set",
                     "train.micro_batch_size=256", "--set", "metrics.log_every_steps=1"});
  ASSERT_TRUE(wait_until(60s, [&] {
    return log_of("stokerd").find("info    training started ") != std::string::npos;
  }));
  trainer.signal(SIGTERM);
  ASSERT_TRUE(wait_until(30s, [&] {
    return log_of("stokerd").find("info    shutdown requested ") != std::string::npos;
  }));
  trainer.signal(SIGTERM);
  const auto exit = trainer.wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 143);
  EXPECT_NE(log_of("stokerd").find("exit forced"), std::string::npos);
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

// The worker processes that rewrite images do not answer, and there is no timeout.
TEST_F(SignalHandlingTest, StopsWhileImagesAreRewritten) {
  std::filesystem::create_directories(path("images/a"));
  std::ofstream(path("images/a/0.jpg"), std::ios::binary) << image::testing::encode_jpeg(
      image::testing::pattern(1000, 1000), {.quality = 50, .progressive = true});
  for (int i = 1; i < 2000; ++i)
    std::filesystem::create_hard_link(path("images/a/0.jpg"),
                                      path("images/a/" + std::to_string(i) + ".jpg"));
  const std::string config = write_config(
      "data:\n  train: {format: image_folder, path: " + path("images") +
      ", transforms: [resize: {size: [8, 8]}], cache: {type: packed, jpeg_restart_markers: true}}\n"
      "model: {name: mlp, hidden_sizes: [8]}\ntask: {name: classification}\n"
      "optimizer: {name: adam}\ntrain: {max_steps: 10, micro_batch_size: 4}\n"
      "feed: {worker_timeout_seconds: null}\n");
  Process trainer = this->trainer(config, run_dir());
  std::vector<pid_t> workers;
  ASSERT_TRUE(wait_until(60s, [&] {
    workers = children_of(trainer.pid(), "stoker-feed");
    return !workers.empty();
  }));
  for (const pid_t worker : workers) ::kill(worker, SIGSTOP);
  trainer.signal(SIGTERM);
  const auto exit = trainer.wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
  EXPECT_EQ(log_of("stokerd").find("packed cache built"), std::string::npos);
  for (const pid_t worker : workers) EXPECT_NE(::kill(worker, 0), 0) << "a process is left";
}

TEST_F(SignalHandlingTest, ReloadsLogLevelOnSighupAndReportsOtherChanges) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
  ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
  write_config(small_config("log: {level: warning}\n"));
  trainer.signal(SIGHUP);
  EXPECT_TRUE(wait_until(30s, [&] {
    return log_of("stokerd").find("setting change deferred") == std::string::npos &&
           log_of("stokerd").find("configuration reloaded") != std::string::npos;
  }));
  write_config(small_config("run: {seed: 9}\n"));
  trainer.signal(SIGHUP);
  EXPECT_TRUE(wait_until(
      30s, [&] { return log_of("stokerd").find("deferred key=run.seed ") != std::string::npos; }));
  std::ofstream(config) << "train: {max_stepz: 1}\n";
  trainer.signal(SIGHUP);
  EXPECT_TRUE(wait_until(30s, [&] {
    return log_of("stokerd").find("configuration reload rejected") != std::string::npos;
  }));
  EXPECT_NE(log_of("stokerd").find("did you mean 'max_steps'"), std::string::npos);
  trainer.signal(SIGTERM);
  const auto exit = trainer.wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
}

TEST_F(IdleCpuTimeTest, UsesUnderOnePercentCpuWhenPausedAndWaiting) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=1000000", "--set", "checkpoint.save_every_steps=null"});
  ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
  Process evaluator = this->evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_until(
      30s, [&] { return log_of("stoker-eval").find("evaluator started") != std::string::npos; }));
  const auto exit = ctl(run_dir(), {"pause"}, "pause").wait(30s);
  ASSERT_TRUE(exit.has_value() && exit->code == 0);
  const auto workers = children_of(trainer.pid(), "stoker-feed");
  ASSERT_FALSE(workers.empty());
  std::vector<pid_t> all = workers;
  all.push_back(trainer.pid());
  all.push_back(evaluator.pid());
  // CPU time, not wall time, so that load of other processes does not count. The processes come to rest,
  // for instance after the workers have filled the ring; one that polls never does.
  constexpr auto kWindow = 3000ms;
  const auto times = [&] {
    std::vector<std::chrono::nanoseconds> used;
    for (const pid_t pid : all) used.push_back(processor_time(pid));
    return used;
  };
  std::string busy;
  for (int window = 0; window < 10 && (window == 0 || !busy.empty()); ++window) {
    const auto before = times();
    std::this_thread::sleep_for(kWindow);  // the measured window
    const auto after = times();
    busy.clear();
    for (size_t i = 0; i < all.size(); ++i)
      if (after[i] - before[i] > kWindow / 100 * machine_slowness())
        busy += text_of("/proc/" + std::to_string(all[i]) + "/comm");
  }
  EXPECT_EQ(busy, "") << "uses more than 1 % of a CPU in each of ten windows";
}

}  // namespace
}  // namespace stoker::test
