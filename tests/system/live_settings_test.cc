// Settings that change while a run trains.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>

#include <gmock/gmock.h>

#include "shared/checkpoint/store.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

class LiveSettingsRunTest : public RunTest {
 protected:
  // A constant learning rate, so that the last step changes no other one.
  Process start(const std::vector<std::string>& more) const {
    return trainer(write_config(small_config()), run_dir(), joined(kConstant, more));
  }
  // The output of stokerctl, which must succeed.
  std::string run_stokerctl(const std::vector<std::string>& words) const {
    std::filesystem::remove(path("ctl.out"));
    const auto exit = ctl(run_dir(), words, "ctl").wait(60s);
    EXPECT_TRUE(exit && exit->code == 0) << log_of("ctl");
    return log_of("ctl");
  }
  // The step at which it is.
  uint64_t pause() const {
    std::smatch step;
    const std::string reply = run_stokerctl({"--json", "pause"});
    return std::regex_search(reply, step, std::regex(R"("step":(\d+))")) ? std::stoull(step.str(1))
                                                                         : 0;
  }
  bool has_record_after(uint64_t step) const { return newest_record_step(run_dir()) > step; }
  size_t count_in_log(const std::string& text) const {
    const std::string log = log_of("stokerd");
    size_t count = 0;
    for (size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++count;
    return count;
  }

  static const inline std::vector<std::string> kConstant{
      "--set", "scheduler={name: constant, warmup_steps: 0}"};
};

TEST_F(LiveSettingsRunTest, ContinuesWithOtherWorkersAndLastStepInSameProcess) {
  Process trainer = start({"--set", "train.max_steps=20000000"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  const uint64_t first = pause();
  run_stokerctl({"set", "feed.num_workers", "3"});
  EXPECT_THAT(run_stokerctl({"set", "train.max_steps", "30000000"}),
              HasSubstr("30000000 at step "));
  run_stokerctl({"resume"});
  ASSERT_TRUE(wait_until(60s, [&] { return has_record_after(first); }));

  const uint64_t last = pause() + 20;
  run_stokerctl({"set", "train.max_steps", std::to_string(last)});
  EXPECT_THAT(run_stokerctl({"get"}),
              ::testing::AllOf(HasSubstr("live, configured: 20000000"), HasSubstr("optimizer.lr")));
  run_stokerctl({"resume"});
  const auto exit = trainer.wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
  EXPECT_EQ(newest_step(run_dir()), last);
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("max_steps reached: " + std::to_string(last) +
                        ", set by stokerctl set; the configuration has 20000000"));
  EXPECT_EQ(count_in_log("daemon started"), 1u);
  EXPECT_EQ(count_in_log("training started"), 2u);
  EXPECT_THAT(text_of(run_dir() + "/config.yaml"), HasSubstr("max_steps: " + std::to_string(last)));
  const std::string changes = text_of(run_dir() + "/setting_changes.jsonl");
  EXPECT_THAT(changes, HasSubstr(R"("key":"feed.num_workers")"));
  EXPECT_THAT(changes, HasSubstr(R"("previous":"20000000","current":"30000000")"));

  ASSERT_EQ(train(write_config(small_config()), run_dir("whole"),
                  joined(kConstant, {"--set", "train.max_steps=" + std::to_string(last)}))
                .code,
            0);
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("whole"), last));
}

// A start after a crash before the first checkpoint begins with the configuration.
TEST_F(LiveSettingsRunTest, ForgetsChangesOfRunThatCrashedWithoutCheckpoint) {
  const std::vector<std::string> unsaved = {"--set", "train.max_steps=20000000", "--set",
                                            "checkpoint.save_every_steps=null"};
  const std::string changes = run_dir() + "/setting_changes.jsonl";
  Process crashed = start(unsaved);
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  run_stokerctl({"set", "optimizer.lr", "0.01"});
  ASSERT_TRUE(wait_until(60s, [&] {
    return text_if_exists(changes).find(R"("key":"optimizer.lr")") != std::string::npos;
  }));
  ASSERT_TRUE(crashed.kill());
  Process trainer = start(unsaved);
  ASSERT_TRUE(wait_until(60s, [&] { return count_in_log("training started") == 2; }));
  EXPECT_FALSE(std::filesystem::exists(changes));
  trainer.signal(SIGTERM);
  EXPECT_EQ(code_of(trainer), 0);
}

TEST_F(LiveSettingsRunTest, WarnsOfContradictionsAndRejectsRatesThatWouldRise) {
  Process trainer =
      this->trainer(write_config(small_config()), run_dir(),
                    {"--set", "train.max_steps=1000000", "--set", "scheduler.warmup_steps=900000"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  const uint64_t last = pause() + 20;
  EXPECT_THAT(run_stokerctl({"set", "train.max_steps", std::to_string(last)}),
              HasSubstr("warning: scheduler.warmup_steps: 900000 is not below"));
  expect_logged("stokerd", "settings contradictory key=scheduler.warmup_steps");
  const auto rejected = ctl(run_dir(), {"set", "optimizer.lr", "1e-5"}, "rejected").wait(60s);
  ASSERT_TRUE(rejected.has_value());
  EXPECT_NE(rejected->code, 0);
  EXPECT_THAT(log_of("rejected"), HasSubstr("scheduler.min_lr: must be at most optimizer.lr"));
  run_stokerctl({"set", "scheduler.min_lr", "null"});
  EXPECT_THAT(run_stokerctl({"set", "optimizer.lr", "1e-5"}), HasSubstr("optimizer.lr 1"));
  run_stokerctl({"resume"});
  EXPECT_EQ(code_of(trainer), 0);
  EXPECT_EQ(newest_step(run_dir()), last);
}

TEST_F(LiveSettingsRunTest, ResumesWithValuesUntilConfigurationChanges) {
  const auto stop = [&](Process& trainer) {
    trainer.signal(SIGTERM);
    const auto exit = trainer.wait(60s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 0);
  };
  const std::vector<std::string> long_run{"--set", "train.max_steps=1000000"};
  {
    Process trainer = start(long_run);
    ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
    run_stokerctl({"set", "optimizer.lr", "0.0005"});
    run_stokerctl({"set", "checkpoint.keep_last", "7"});
    run_stokerctl({"unset", "checkpoint.keep_last"});
    stop(trainer);
  }
  const auto last_record = [&] { return deterministic_records(run_dir()).back(); };
  {
    const uint64_t step = newest_record_step(run_dir());
    Process trainer = start(long_run);
    ASSERT_TRUE(wait_until(60s, [&] { return has_record_after(step); }));
    EXPECT_THAT(run_stokerctl({"get", "optimizer.lr"}), HasSubstr("live, configured: "));
    EXPECT_THAT(run_stokerctl({"get", "checkpoint.keep_last"}), Not(HasSubstr("live")));
    stop(trainer);
    EXPECT_THAT(last_record(), HasSubstr("\"lr\":5e-04"));
    EXPECT_THAT(log_of("stokerd"), HasSubstr("live setting resumed key=optimizer.lr"));
  }
  const uint64_t step = newest_record_step(run_dir());
  Process trainer = start(joined(long_run, {"--set", "optimizer.lr=0.25"}));
  ASSERT_TRUE(wait_until(60s, [&] { return has_record_after(step); }));
  EXPECT_THAT(run_stokerctl({"get", "optimizer.lr"}), HasSubstr("--set"));
  stop(trainer);
  EXPECT_THAT(last_record(), HasSubstr("\"lr\":0.25"));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("live setting dropped key=optimizer.lr"));
}

// More checkpoints exist after each change than the retention before it would have left.
TEST_F(LiveSettingsRunTest, AppliesRetentionAndLogLevel) {
  Process trainer =
      start({"--set", "train.max_steps=1000000000", "--set", "checkpoint.save_every_steps=null",
             "--set", "checkpoint.keep_last=2", "--set", "eval.checkpoints=all"});
  ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
  std::vector<uint64_t> saved;
  // The last `left` of them are left.
  const auto save = [&](size_t count, size_t left) {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t before = newest_step(run_dir());
      ASSERT_TRUE(wait_until(60s, [&] {
        run_stokerctl({"checkpoint"});
        return newest_step(run_dir()) > before;
      }));
      saved.push_back(newest_step(run_dir()));
    }
    std::vector<std::string> names;
    for (size_t i = saved.size() - left; i < saved.size(); ++i)
      names.push_back(checkpoint::CheckpointStore::checkpoint_name(saved[i]));
    EXPECT_TRUE(wait_until(60s, [&] { return checkpoints(run_dir()) == names; }))
        << ::testing::PrintToString(checkpoints(run_dir()));
  };
  // At level debug.
  const auto logs_deletion_of = [&](uint64_t step) {
    return count_in_log(" checkpoint deleted step=" + std::to_string(step) + "\n") == 1;
  };
  ASSERT_NO_FATAL_FAILURE(save(4, 2));
  run_stokerctl({"set", "log.level", "debug"});
  run_stokerctl({"set", "checkpoint.keep_last", "4"});
  ASSERT_NO_FATAL_FAILURE(save(3, 4));
  run_stokerctl({"set", "checkpoint.keep_unevaluated", "6"});
  run_stokerctl({"set", "checkpoint.keep_last", "2"});
  ASSERT_NO_FATAL_FAILURE(save(3, 6));
  ASSERT_TRUE(wait_until(60s, [&] { return logs_deletion_of(saved[3]); })) << log_of("stokerd");
  run_stokerctl({"unset", "log.level"});
  run_stokerctl({"unset", "checkpoint.keep_unevaluated"});
  ASSERT_NO_FATAL_FAILURE(save(1, 2));
  trainer.signal(SIGTERM);
  EXPECT_EQ(code_of(trainer), 0);
  EXPECT_FALSE(logs_deletion_of(saved[0])) << log_of("stokerd");
  EXPECT_TRUE(logs_deletion_of(saved[2]));
  EXPECT_FALSE(logs_deletion_of(saved[4]));
}

// A change that is lost with the steps after the last checkpoint is not in the record of changes.
TEST_F(LiveSettingsRunTest, RecordsAfterCrashOnlyChangesThatRunStillHas) {
  const std::vector<std::string> rarely{"--set", "train.max_steps=1000000", "--set",
                                        "checkpoint.save_every_steps=null"};
  {
    Process trainer = start(rarely);
    ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > 0; }));
    pause();
    run_stokerctl({"set", "optimizer.lr", "0.0005"});
    run_stokerctl({"checkpoint"});
    run_stokerctl({"set", "optimizer.lr", "0.0007"});  // the same step
    run_stokerctl({"set", "checkpoint.keep_last", "7"});
    ASSERT_TRUE(wait_until(60s, [&] {
      return text_if_exists(run_dir() + "/setting_changes.jsonl").find("keep_last") !=
             std::string::npos;
    }));
    trainer.signal(SIGKILL);
    ASSERT_TRUE(trainer.wait(60s).has_value());
  }
  const uint64_t saved = newest_step(run_dir());
  Process trainer = start(rarely);
  ASSERT_TRUE(wait_until(60s, [&] { return has_record_after(saved); })) << log_of("stokerd");
  EXPECT_THAT(run_stokerctl({"get", "optimizer.lr"}), HasSubstr("0.0005"));
  const std::string changes = text_of(run_dir() + "/setting_changes.jsonl");
  EXPECT_EQ(std::ranges::count(changes, '\n'), 1) << changes;
  EXPECT_THAT(changes, HasSubstr(R"("key":"optimizer.lr")"));
}

}  // namespace
}  // namespace stoker::test
