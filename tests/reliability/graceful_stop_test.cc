// SIGTERM at chosen system calls of stokerd: during start, during a save, and twice.
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "shared/run/run_state.h"
#include "tests/reliability/tracer.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GracefulStopTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (const auto why = untraceable_reason()) GTEST_SKIP() << *why;
    config_ = write_config(small_config());
  }

  TraceEnd run_until_exit(const std::function<Verdict(const FileCall&)>& check,
                          const std::vector<std::string>& more = {}) const {
    return trace(joined({program("stokerd"), "--config", config_, "--run-dir", run_dir(), "--set",
                         "train.max_steps=1000000", "--set", "checkpoint.save_every_steps=1000"},
                        more),
                 path("stokerd.out"), run_dir(), check);
  }
  // Trains 20 steps, then starts again from the checkpoint of step 10, with other settings and SIGTERM before
  // the first call that fulfils the condition.
  void stop_while_it_resumes_from_step_10(const std::function<bool(const FileCall&)>& is_point) {
    ASSERT_EQ(train(config_, run_dir(),
                    {"--set", "train.max_steps=20", "--set", "checkpoint.save_every_steps=10"})
                  .code,
              0);
    before_ = results();
    ASSERT_TRUE(before_.contains("config.yaml"));
    ASSERT_TRUE(before_.contains(checkpoint_10_ + "/model.safetensors"));
    ASSERT_TRUE(before_.contains("checkpoints/step-000000020/model.safetensors"));
    bool stop_requested = false;
    const auto end = run_until_exit(
        [&](const FileCall& call) {
          if (call.name == "epoll_wait") return verdict_of_wait();
          if (stop_requested || !is_point(call)) return Verdict::kContinue;
          stop_requested = true;
          return Verdict::kTerminateAndHold;
        },
        {"--resume", run_dir() + "/" + checkpoint_10_});
    ASSERT_TRUE(stop_requested);
    EXPECT_EQ(end.code, 0) << log_of("stokerd");
    EXPECT_EQ(num_shutdowns(), 1u) << log_of("stokerd");
  }
  // The signal has been handled, if the main thread waits after it has logged it.
  Verdict verdict_of_wait() const {
    return num_shutdowns() > 0 ? Verdict::kContinue : Verdict::kHold;
  }
  size_t num_shutdowns() const {
    return count_of(log_of("stokerd"), "info    shutdown requested ");
  }
  void expect_all_valid() const {
    for (const std::string& name : checkpoints(run_dir())) {
      const auto opened =
          checkpoint::CheckpointStore::open_verified(run_dir() + "/checkpoints/" + name);
      EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    }
  }
  // The paths in the run directory that calls change.
  std::set<std::string> changed_by(const std::vector<FileCall>& calls) const {
    std::set<std::string> paths;
    for (const FileCall& call : calls)
      for (const std::string& path : {call.path, call.to})
        if (path.starts_with(run_dir() + "/")) paths.insert(path.substr(run_dir().size() + 1));
    return paths;
  }
  // What a run has trained, saved and recorded, its configuration, and the index of its data: contents by path.
  std::map<std::string, std::string> results() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir())) {
      const std::string path = entry.path().string().substr(run_dir().size() + 1);
      if (!entry.is_regular_file() || path == "LOCK" || path == "last_start.json" ||
          path.starts_with("logs/"))
        continue;
      files[path] = text_of(entry.path());
    }
    return files;
  }
  static bool is_write_of(const FileCall& call, const char* file) {
    return call.name == "write" && call.path.find("/.tmp-step-") != std::string::npos &&
           call.path.ends_with(file);
  }

  const std::string checkpoint_10_ = "checkpoints/step-000000010";
  std::string config_;
  std::map<std::string, std::string> before_;  // results() of 20 steps
};

// From the signal on, a start writes only its log, its state and the indexes of the data.
TEST_F(GracefulStopTest, ExitsWithZeroWithoutCheckpointOnStopDuringStartup) {
  std::optional<std::vector<FileCall>> changes;  // after the signal
  const auto end = run_until_exit([&](const FileCall& call) {
    if (call.name == "epoll_wait") return verdict_of_wait();
    if (changes && call.changes) changes->push_back(call);
    const bool is_index =
        call.path.find("/index/") != std::string::npos && call.name.starts_with("openat");
    if (changes || !is_index || !call.changes) return Verdict::kContinue;
    changes.emplace();
    return Verdict::kTerminateAndHold;
  });
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.code, 0) << log_of("stokerd");
  EXPECT_EQ(num_shutdowns(), 1u) << log_of("stokerd");
  EXPECT_TRUE(checkpoints(run_dir()).empty());
  EXPECT_EQ(num_records(run_dir()), 0u);
  const auto state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_TRUE(state.end.has_value());
  EXPECT_EQ(state.end->outcome, run::RunOutcome::kStopped);
  ASSERT_TRUE(changes.has_value());
  EXPECT_THAT(
      changed_by(*changes),
      Each(AnyOf(HasSubstr("exit_status.json"), StartsWith("index"), StartsWith("eval/index"),
                 StartsWith("logs"), "last_start.json", "restart_count.json", "control.sock")));
  for (const auto& [path, text] : results())
    EXPECT_THAT(path, AnyOf(StartsWith("index/"), StartsWith("eval/index/"), "exit_status.json"));
  // The next start must not be affected.
  EXPECT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=20"}).code, 0);
}

TEST_F(GracefulStopTest, ChangesNothingOfRunOnStopBeforeItResumes) {
  ASSERT_NO_FATAL_FAILURE(stop_while_it_resumes_from_step_10([&](const FileCall& call) {
    return call.path.ends_with(checkpoint_10_ + "/manifest.json");
  }));
  EXPECT_EQ(results(), before_);
  EXPECT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  EXPECT_EQ(newest_step(run_dir()), 40u);
}

// The later checkpoint is archived by then.
TEST_F(GracefulStopTest, KeepsConfigurationOnStopWhileItResumes) {
  ASSERT_NO_FATAL_FAILURE(stop_while_it_resumes_from_step_10([&](const FileCall& call) {
    return call.name.starts_with("rename") && call.path.ends_with("/checkpoints/step-000000020");
  }));
  EXPECT_EQ(text_of(run_dir() + "/config.yaml"), before_["config.yaml"]);
  EXPECT_EQ(newest_step(run_dir()), 10u);
  EXPECT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  EXPECT_EQ(newest_step(run_dir()), 40u);
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
