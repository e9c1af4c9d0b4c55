// SIGTERM at chosen system calls of stokerd: during start, during a save, and twice.
#include <string>

#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "shared/run/run_state.h"
#include "tests/reliability/tracer.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

class GracefulStopTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
    config_ = write_config(small_config());
  }

  TraceEnd run_until_exit(const std::function<Verdict(const FileCall&)>& check) const {
    return trace({program("stokerd"), "--config", config_, "--run-dir", run_dir(), "--set",
                  "train.max_steps=1000000", "--set", "checkpoint.save_every_steps=1000"},
                 path("stokerd.out"), run_dir(), check);
  }
  void expect_all_valid() const {
    for (const std::string& name : checkpoints(run_dir())) {
      const auto opened =
          checkpoint::CheckpointStore::open_verified(run_dir() + "/checkpoints/" + name);
      EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    }
  }
  static bool is_write_of(const FileCall& call, const char* file) {
    return call.name == "write" && call.path.find("/.tmp-step-") != std::string::npos &&
           call.path.ends_with(file);
  }

  std::string config_;
};

TEST_F(GracefulStopTest, ExitsWithZeroWithoutCheckpointOnStopDuringStartup) {
  const auto end = run_until_exit([](const FileCall& call) {
    const bool is_index = call.path.find("/index/") != std::string::npos && call.name == "openat";
    return is_index && call.occurrence > 0 && call.changes ? Verdict::kTerminate
                                                           : Verdict::kContinue;
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.code, 0) << log_of("stokerd");
  EXPECT_NE(log_of("stokerd").find("info    shutdown requested "), std::string::npos)
      << log_of("stokerd");
  EXPECT_TRUE(checkpoints(run_dir()).empty());
  EXPECT_EQ(num_records(run_dir()), 0u);
  const auto state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_TRUE(state.end.has_value());
  EXPECT_EQ(state.end->outcome, run::RunOutcome::kStopped);
  // The next start must not be affected.
  EXPECT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=20"}).code, 0);
}

TEST_F(GracefulStopTest, CompletesSaveAndSavesLastStepOnceOnStopDuringSave) {
  bool stop_requested = false;
  const auto end = run_until_exit([&](const FileCall& call) {
    if (stop_requested || !is_write_of(call, "/optimizer.safetensors")) return Verdict::kContinue;
    stop_requested = true;
    return Verdict::kTerminate;
  });
  ASSERT_TRUE(stop_requested);
  EXPECT_EQ(end.code, 0) << log_of("stokerd");
  const auto state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_TRUE(state.end.has_value());
  EXPECT_EQ(state.end->outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(newest_step(run_dir()), state.end->step);
  const std::string log = log_of("stokerd");
  const std::string first = "checkpoint saved step=1000 ";
  EXPECT_NE(log.find(first), std::string::npos) << "the save in progress was abandoned";
  const std::string last = "checkpoint saved step=" + std::to_string(state.end->step) + " ";
  EXPECT_EQ(log.find(last), log.rfind(last)) << "saved twice";
  expect_all_valid();
}

TEST_F(GracefulStopTest, ExitsImmediatelyWithIntactCheckpointOnSecondStop) {
  const auto end = run_until_exit([](const FileCall& call) {
    const bool is_second_save = call.path.find("/.tmp-step-000001000") == std::string::npos;
    if (!is_second_save) return Verdict::kContinue;
    for (const char* const file :
         {"/model.safetensors", "/optimizer.safetensors", "/manifest.json"})
      if (is_write_of(call, file)) return Verdict::kTerminate;
    return Verdict::kContinue;
  });
  EXPECT_EQ(end.code, 143) << log_of("stokerd");
  EXPECT_NE(log_of("stokerd").find("exit forced"), std::string::npos);
  ASSERT_GE(newest_step(run_dir()), 1000u);
  expect_all_valid();
  EXPECT_EQ(train(config_, run_dir(),
                  {"--set", "train.max_steps=" + std::to_string(newest_step(run_dir()) + 10)})
                .code,
            0);
}

}  // namespace
}  // namespace stoker::test
