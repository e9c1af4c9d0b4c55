// A start that ends before it is accepted is not the end of the run: what the run was is as before, and last_start.json says
// how the start ended.
#include <fcntl.h>
#include <sys/file.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/run/run_state.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;
using run::RunOutcome;
using run::RunState;
using ::testing::HasSubstr;

class RefusedStartTest : public RunTest, public ::testing::WithParamInterface<RunOutcome> {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=50"}).code, 0)
        << log_of("stokerd");
    std::vector<std::string> more = {"--set", "train.max_steps=50"};
    if (GetParam() == RunOutcome::kStopped) more = {"--set", "train.max_steps=100000000"};
    Process trainer = this->trainer(config_, run_dir(), more);
    if (GetParam() == RunOutcome::kStopped) {
      ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run_dir()) > 50; }));
      Process save = ctl(run_dir(), {"checkpoint"}, "save");
      ASSERT_EQ(code_of(save), 0) << log_of("save");
      Process stop = ctl(run_dir(), {"stop"}, "stop");
      ASSERT_EQ(code_of(stop), 0) << log_of("stop");
    }
    code_ = code_of(trainer);
    if (GetParam() == RunOutcome::kFailed) {
      code_ = 65;
      ASSERT_TRUE(run::write_exit_status(default_file_system(), run::RunLayout(run_dir()),
                                         {RunOutcome::kFailed, 50, "loss is not finite", code_})
                      .ok());
    }
    before_ = state();
    ASSERT_TRUE(before_.end.has_value()) << log_of("stokerd");
    ASSERT_EQ(before_.end->outcome, GetParam());
    files_ = files();
  }

  RunState state() const { return run::read_run_state(run::RunLayout(run_dir())); }

  // Path -> content, of all that a start may not change.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (fs::recursive_directory_iterator i(run_dir()), end; i != end; ++i) {
      const std::string name = fs::relative(i->path(), run_dir()).string();
      if (name == "logs" || name == "index") {
        i.disable_recursion_pending();
        continue;
      }
      if (name == "LOCK" || name == "restart_count.json" || name == "last_start.json") continue;
      found[name] = i->is_regular_file() && !i->is_symlink() ? text_of(i->path()) : "";
    }
    return found;
  }

  // After a start that ended with `code`, or was killed: nullopt.
  void expect_unchanged(const std::optional<int>& code, const std::string& reason) {
    const RunState now = state();
    ASSERT_TRUE(now.end.has_value());
    EXPECT_EQ(now.end->outcome, before_.end->outcome);
    EXPECT_EQ(now.end->step, before_.end->step);
    EXPECT_EQ(now.end->reason, before_.end->reason);
    EXPECT_EQ(now.end->exit_code, code_);
    if (code) {
      ASSERT_TRUE(now.last_start.has_value());
      EXPECT_EQ(now.last_start->end.exit_code, *code);
      EXPECT_THAT(now.last_start->end.reason, HasSubstr(reason));
      EXPECT_EQ(files(), files_);
      Process status = ctl(run_dir(), {"status"}, "status");
      EXPECT_EQ(code_of(status), 0);
      EXPECT_THAT(log_of("status"), ::testing::StartsWith(std::string(run::to_string(GetParam()))));
      EXPECT_THAT(log_of("status"), HasSubstr("last start  ended before training"));
    }
  }

  std::string config_;
  int code_ = 0;
  RunState before_;
  std::map<std::string, std::string> files_;
};

TEST_P(RefusedStartTest, LeavesEndOfRun) {
  struct Refusal {
    std::vector<std::string> options;
    int code;
    std::string reason;
  };
  const std::vector<Refusal> refusals{
      {{"--set", "model.hidden_sizes=[7]"}, 78, "--allow-model-change"},
      {{"--set", "data.train.num_samples=4000"}, 78, "--allow-data-change"},
      {{"--set", "train.micro_batch_size=3"}, 78, "--allow-batch-change"},
      {{"--resume", path("gone")}, 78, "gone"},
      {{"--set", "control.operators=[nobody-of-this-name]"}, 78, "nobody-of-this-name"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.options.back());
    const Exit exit = train(config_, run_dir(), refusal.options);
    EXPECT_EQ(exit.code, refusal.code) << log_of("stokerd");
    expect_unchanged(refusal.code, refusal.reason);
  }
}

// While a start waits for the newest checkpoint, which another program has locked.
TEST_P(RefusedStartTest, LeavesEndOfRunWhenItIsStoppedOrKilled) {
  const std::string sums = newest_checkpoint(run_dir()) + "/SHA256SUMS";
  for (const int signal : {SIGTERM, SIGKILL}) {
    const UniqueFd lock(::open(sums.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
    Process trainer = this->trainer(config_, run_dir());
    ASSERT_TRUE(wait_until(kPatience, [&] {
      const std::string log = text_if_exists(path("stokerd.out"));
      return log.find("pid=" + std::to_string(trainer.pid())) != std::string::npos &&
             log.find("checkpoint locked") != std::string::npos;
    })) << log_of("stokerd");
    EXPECT_EQ(state().phase, RunState::Phase::kRunning);
    ::kill(trainer.pid(), signal);
    (void)trainer.wait(kPatience);
    if (signal == SIGTERM)
      expect_unchanged(0, "stop requested by SIGTERM");
    else
      expect_unchanged(std::nullopt, "");
  }
  // It continues as if nothing had been.
  EXPECT_EQ(train(config_, run_dir(),
                  {"--set", "train.max_steps=" + std::to_string(newest_step(run_dir()) + 10)})
                .code,
            0)
      << log_of("stokerd");
  EXPECT_EQ(state().end->outcome, RunOutcome::kFinished);
  EXPECT_FALSE(state().last_start.has_value());
  EXPECT_FALSE(fs::exists(run::RunLayout(run_dir()).former_exit_status_file()));
}

class IndexedStartTest : public RunTest {
 protected:
  // Takes seconds to index, so that a test can watch it.
  std::string config() const {
    std::ofstream file(path("train.csv"));
    file << "x,kind\n";
    std::string rows;
    for (int i = 0; i < 10'000; ++i)
      rows += std::to_string(i % 10) + "," + (i % 2 ? "a" : "b") + "\n";
    for (int i = 0; i < 1500; ++i) file << rows;
    return "data:\n  train: {format: csv, path: " + path("train.csv") +
           ", fields: {label: kind}}\nmodel: {name: mlp, hidden_sizes: [2]}\n"
           "task: {name: classification}\n"
           "train: {max_steps: 3, micro_batch_size: 2, device: cpu, num_threads: 1}\n";
  }
  std::string status() const {
    Process status = ctl(run_dir(), {"status"}, "status");
    (void)code_of(status);
    return log_of("status");
  }
};

// Before training, `stop` takes the way of SIGTERM: an index is not completed first.
TEST_F(IndexedStartTest, IsStoppedDuringIndex) {
  const std::string file = write_config(config());
  Process trainer = this->trainer(file, run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] {
    return status().find("waiting for the index of data.train: ") != std::string::npos;
  })) << log_of("stokerd");
  EXPECT_THAT(status(), ::testing::ContainsRegex("data.train: [0-9 ]+ records.* %"));
  Process stop = ctl(run_dir(), {"stop"}, "stop");
  EXPECT_EQ(code_of(stop), 0) << log_of("stop");
  EXPECT_EQ(code_of(trainer), 0) << log_of("stokerd");
  EXPECT_FALSE(fs::exists(run_dir() + "/index/train.index")) << "the index was completed first";
  const RunState state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_TRUE(state.end.has_value()) << log_of("stokerd");
  EXPECT_EQ(state.end->outcome, RunOutcome::kStopped);
  EXPECT_EQ(state.end->reason, "stop requested through the control socket");
}

INSTANTIATE_TEST_SUITE_P(Runs, RefusedStartTest,
                         ::testing::Values(RunOutcome::kFinished, RunOutcome::kStopped,
                                           RunOutcome::kFailed),
                         [](const auto& tested) {
                           return std::string(run::to_string(tested.param));
                         });

}  // namespace
}  // namespace stoker::test
