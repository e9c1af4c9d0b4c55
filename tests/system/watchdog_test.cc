// A run that hangs, in each phase: stokerd ends with 70, and the stacks tell where it hangs.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class WatchdogRunTest : public RunTest {
 protected:
  Process start(const std::string& config, const std::string& phase,
                const std::vector<std::string>& more = {}) const {
    return trainer(write_config(config), run_dir(),
                   joined({"--set", "watchdog." + phase + "_timeout_seconds=4", "--set",
                           "train.max_steps=1000000000"},
                          more));
  }
  Process start_hanging(const std::string& call, const std::string& config,
                        const std::string& phase) const {
    ::setenv("HANG_ON", call.c_str(), 1);
    ::setenv("LD_PRELOAD", STOKER_HANGING_CALLS, 1);
    Process process = start(config, phase);
    for (const char* const name : {"LD_PRELOAD", "HANG_ON"}) ::unsetenv(name);
    return process;
  }
  // The end of a process that hangs in `phase`; the stacks.
  std::string expect_end(Process& process, const std::string& phase) const {
    const auto exit = process.wait(120s);
    EXPECT_TRUE(exit && exit->code == 70) << log_of("stokerd");
    const std::string log = log_of("stokerd");
    EXPECT_THAT(log, AllOf(HasSubstr("training stalled phase=" + phase),
                           HasSubstr("watchdog expired phase=" + phase),
                           HasSubstr("stack traces saved path=")));
    const std::string status = text_of(run_dir() + "/exit_status.json");
    EXPECT_THAT(status, AllOf(HasSubstr("\"exit_code\":70"), HasSubstr("in phase " + phase)));
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(run_dir() + "/logs"))
      if (entry.path().filename().string().starts_with("stacks-")) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    if (files.empty()) return {};
    EXPECT_THAT(status, HasSubstr(files.front()));
    const std::string stacks = text_of(files.front());
    EXPECT_THAT(stacks, HasSubstr("process " + std::to_string(process.pid()) + " (stokerd)"));
    return stacks;
  }
  // Whether stacks can be read here at all; the log says why not.
  bool has_stacks() const {
    return log_of("stokerd").find("stack traces incomplete") == std::string::npos;
  }
};

TEST_F(WatchdogRunTest, EndsStartThatWaitsForData) {
  std::ofstream table(path("hanging.csv"));
  table << "a,label\n";
  for (int row = 0; row < 100; ++row) table << row << ',' << row % 4 << '\n';
  table.close();
  std::string config = small_config();
  const std::string dataset =
      "{format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}";
  config.replace(config.find(dataset), dataset.size(),
                 "{format: csv, path: " + path("hanging.csv") + ", fields: {label: label}}");
  Process process = start_hanging("open hanging.csv", config, "start");
  const std::string stacks = expect_end(process, "start");
  if (has_stacks()) {
    EXPECT_THAT(stacks, HasSubstr("Run::open_data"));
  }
}

TEST_F(WatchdogRunTest, EndsStepThatNeverReturns) {
  std::string config = small_config();
  const std::string mlp = "model: {name: mlp, hidden_sizes: [32], dropout: 0.1}\n";
  config.replace(config.find(mlp), mlp.size(),
                 "model: {name: plugin, path: " STOKER_PLUGINS
                 "/odd_plugin.so, args: {does: hangs}}\n");
  Process process = start(config, "step");
  const std::string stacks = expect_end(process, "step");
  if (has_stacks()) {
    EXPECT_THAT(stacks, HasSubstr("DefectiveModel::forward"));
  }
}

TEST_F(WatchdogRunTest, EndsCheckpointOnDiskThatDoesNotAnswer) {
  Process process = start_hanging("fsync model.safetensors", small_config(), "checkpoint");
  const std::string stacks = expect_end(process, "checkpoint");
  if (has_stacks()) {
    EXPECT_THAT(stacks, HasSubstr("CheckpointWriter::run"));
  }
}

TEST_F(WatchdogRunTest, EndsWaitForStoppedWorkers) {
  Process process =
      start(small_config(), "data",
            {"--set", "feed.num_processes=2", "--set", "feed.worker_timeout_seconds=null"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; })) << log_of("stokerd");
  const auto workers = children_of(process.pid(), "stoker-feed");
  ASSERT_EQ(workers.size(), 2u);
  for (const pid_t worker : workers) ::kill(worker, SIGSTOP);
  const std::string stacks = expect_end(process, "data");
  for (const pid_t worker : workers)
    EXPECT_THAT(stacks, HasSubstr("process " + std::to_string(worker) + " (stoker-feed)"));
  EXPECT_THAT(stacks, HasSubstr("T (stopped)"));
  // They have not outlived it.
  EXPECT_TRUE(
      wait_until(30s, [&] { return ::kill(workers[0], 0) != 0 && ::kill(workers[1], 0) != 0; }));
}

// Pausing is no hang, and neither is a process that was stopped as a whole.
TEST_F(WatchdogRunTest, DoesNotEndPausedOrStoppedRun) {
  Process process = start(small_config(), "step", {"--set", "watchdog.data_timeout_seconds=4"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; })) << log_of("stokerd");
  ASSERT_EQ(ctl(run_dir(), {"pause"}, "ctl").wait(60s)->code, 0) << log_of("ctl");
  EXPECT_FALSE(process.wait(8s).has_value()) << log_of("stokerd");
  ASSERT_EQ(ctl(run_dir(), {"resume"}, "ctl").wait(60s)->code, 0) << log_of("ctl");
  process.signal(SIGSTOP);
  EXPECT_FALSE(process.wait(8s).has_value());
  process.signal(SIGCONT);
  const uint64_t step = newest_record_step(run_dir());
  EXPECT_TRUE(wait_until(60s, [&] { return newest_record_step(run_dir()) > step; }));
  EXPECT_EQ(log_of("stokerd").find("watchdog expired"), std::string::npos) << log_of("stokerd");
}

}  // namespace
}  // namespace stoker::test
