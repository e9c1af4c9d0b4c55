// A run that hangs, in each phase: stokerd ends with 70, and the stacks tell where it hangs, unless it is
// stopped before.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include <gmock/gmock.h>

#include "tests/daemon/service/notify_listener.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WatchdogRunTest : public RunTest {
 protected:
  Process start(const std::string& config, const std::vector<std::string>& more = {}) const {
    return trainer(write_config(config), run_dir(),
                   joined({"--set", "train.max_steps=1000000000"}, more));
  }
  static std::vector<std::string> timeout_of(const std::string& phase) {
    return {"--set", "watchdog." + phase + "_timeout_seconds=" + std::to_string(scaled_seconds(4))};
  }
  Process start_hanging(const std::string& call, const std::string& config,
                        const std::vector<std::string>& more = {}) const {
    ::setenv("HANG_ON", call.c_str(), 1);
    ::setenv("LD_PRELOAD", STOKER_HANGING_CALLS, 1);
    Process process = start(config, more);
    for (const char* const name : {"LD_PRELOAD", "HANG_ON"}) ::unsetenv(name);
    return process;
  }
  bool hangs_in(const std::string& call) const {
    return wait_until(60s, [&] {
      return text_if_exists(path("stokerd.out")).find("hangs in " + call) != std::string::npos;
    });
  }
  // Trains on hanging.csv.
  std::string table_config() const {
    std::ofstream table(path("hanging.csv"));
    table << "a,label\n";
    for (int row = 0; row < 100; ++row) table << row << ',' << row % 4 << '\n';
    std::string config = small_config();
    const std::string dataset =
        "{format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: "
        "0.5}";
    return config.replace(
        config.find(dataset), dataset.size(),
        "{format: csv, path: " + path("hanging.csv") + ", fields: {label: label}}");
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
  // What the log says if this machine does not let stacks be read.
  std::optional<std::string> why_no_stacks() const {
    const std::string log = log_of("stokerd");
    const size_t at = log.find("stack traces incomplete");
    if (at == std::string::npos) return std::nullopt;
    return log.substr(at, log.find('\n', at) - at);
  }
};

TEST_F(WatchdogRunTest, EndsStartThatWaitsForData) {
  Process process = start_hanging("open hanging.csv", table_config(), timeout_of("start"));
  const std::string stacks = expect_end(process, "start");
  if (const auto why = why_no_stacks()) GTEST_SKIP() << *why;
  EXPECT_THAT(stacks, HasSubstr("Run::open_data"));
}

// The thread that opens the data cannot be stopped: the process exits without it. Prints the time, for
// docs/reliability.md.
TEST_F(WatchdogRunTest, ExitsOnSigtermWhileStartWaitsForData) {
  Process process = start_hanging("open hanging.csv", table_config());
  ASSERT_TRUE(hangs_in("open"));
  const auto began = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  EXPECT_EQ(code_of(process), 0);
  std::cout << "a start that hangs exited "
            << std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::steady_clock::now() - began)
                   .count()
            << " ms after SIGTERM\n";
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("startup cancelled"), Not(HasSubstr("training started"))));
  EXPECT_THAT(text_of(run_dir() + "/exit_status.json"), HasSubstr(R"("state":"stopped")"));
  // No configuration, index, record or checkpoint.
  for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(fs::relative(entry.path(), run_dir()).string(),
                AnyOf("LOCK", "index/LOCK", "exit_status.json", "logs/stokerd.log"));
  }
}

TEST_F(WatchdogRunTest, EndsStepThatNeverReturns) {
  std::string config = small_config();
  const std::string mlp = "model: {name: mlp, hidden_sizes: [32], dropout: 0.1}\n";
  config.replace(config.find(mlp), mlp.size(),
                 "model: {name: plugin, path: " STOKER_PLUGINS
                 "/odd_plugin.so, args: {does: hangs}}\n");
  Process process = start(config, timeout_of("step"));
  const std::string stacks = expect_end(process, "step");
  if (const auto why = why_no_stacks()) GTEST_SKIP() << *why;
  EXPECT_THAT(stacks, HasSubstr("DefectiveModel::forward"));
}

TEST_F(WatchdogRunTest, EndsCheckpointOnDiskThatDoesNotAnswer) {
  Process process =
      start_hanging("fsync model.safetensors", small_config(), timeout_of("checkpoint"));
  const std::string stacks = expect_end(process, "checkpoint");
  if (const auto why = why_no_stacks()) GTEST_SKIP() << *why;
  EXPECT_THAT(stacks, HasSubstr("CheckpointWriter::run"));
}

// While the disk does not answer, the watchdog limits the time, not systemd.
TEST_F(WatchdogRunTest, ExtendsTimeoutsOfSystemdWhileItSavesAndStops) {
  service::NotifyListener manager(service::NotifyListener::Kind::kPath);
  ::setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  Process process = start_hanging("fsync model.safetensors", small_config());
  ::unsetenv("NOTIFY_SOCKET");
  std::string heard, forgotten;
  // Forgets what came before it.
  const auto hears = [&](const std::string& words) {
    return wait_until(60s, [&] {
      for (const std::string& message : manager.take()) heard += message + "\n";
      const size_t at = heard.find(words);
      if (at == std::string::npos) return false;
      forgotten = heard.substr(0, at);
      heard.erase(0, at + words.size());
      return true;
    });
  };
  ASSERT_TRUE(hangs_in("fsync"));
  EXPECT_TRUE(hears("STATUS=saving  step ")) << heard;
  // After the sign of life, it would extend the timeout of systemd's watchdog, too.
  EXPECT_TRUE(hears("WATCHDOG=1\n")) << heard;
  EXPECT_THAT(forgotten, HasSubstr("EXTEND_TIMEOUT_USEC=60000000\n"));
  process.signal(SIGTERM);
  EXPECT_TRUE(hears("STOPPING=1\n")) << heard;
  EXPECT_TRUE(hears("STATUS=stopping  step ")) << heard;
  EXPECT_TRUE(hears("EXTEND_TIMEOUT_USEC=60000000\n")) << heard;
  process.signal(SIGTERM);
  EXPECT_EQ(code_of(process), 143);
}

TEST_F(WatchdogRunTest, EndsWaitForStoppedWorkers) {
  Process process =
      start(small_config(), joined(timeout_of("data"), {"--set", "feed.num_processes=2", "--set",
                                                        "feed.worker_timeout_seconds=null"}));
  std::vector<pid_t> workers;
  ASSERT_TRUE(wait_until(60s, [&] {
    workers = children_of(process.pid(), "stoker-feed");
    return workers.size() == 2 && num_records(run_dir()) > 0;
  })) << log_of("stokerd");
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
  const std::string config = write_config(small_config());
  const auto start_at = [&](const std::string& run) {
    return Process(joined({program("stokerd"), "--config", config, "--run-dir", run_dir(run),
                           "--set", "train.max_steps=1000000000"},
                          joined(timeout_of("step"), timeout_of("data"))),
                   path(run + ".out"));
  };
  Process paused = start_at("paused"), stopped = start_at("stopped");
  const auto trains_after = [&](const std::string& run, uint64_t step) {
    return wait_until(60s, [&] { return newest_record_step(run_dir(run)) > step; });
  };
  for (const char* const run : {"paused", "stopped"}) ASSERT_TRUE(trains_after(run, 0)) << run;
  ASSERT_EQ(ctl(run_dir("paused"), {"pause"}, "ctl").wait(60s)->code, 0) << log_of("ctl");
  stopped.signal(SIGSTOP);
  EXPECT_FALSE(paused.wait(6s).has_value()) << log_of("paused");
  EXPECT_FALSE(stopped.wait(0s).has_value());
  ASSERT_EQ(ctl(run_dir("paused"), {"resume"}, "ctl").wait(60s)->code, 0) << log_of("ctl");
  stopped.signal(SIGCONT);
  for (const char* const run : {"paused", "stopped"}) {
    EXPECT_TRUE(trains_after(run, newest_record_step(run_dir(run)))) << run;
    EXPECT_THAT(log_of(run), Not(HasSubstr("watchdog expired")));
  }
}

}  // namespace
}  // namespace stoker::test
