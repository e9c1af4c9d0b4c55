// Resumed runs: unchanged, or with a change that the command line allows.
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/cgroup.h"
#include "shared/base/machine.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

class ResumeTest : public RunTest {
 protected:
  // Resumes a run of 80 steps up to 160 with `change`, which is rejected without `flag`.
  void expect_accepted_with_flag(const std::string& flag, const std::vector<std::string>& change,
                                 const std::string& named) {
    const std::string config = write_config(small_config());
    ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=80"}).code, 0);
    const auto changed = joined({"--set", "train.max_steps=160"}, change);
    const auto before = checkpoints(run_dir());
    EXPECT_EQ(train(config, run_dir(), changed).code, 78);
    EXPECT_NE(log_of("stokerd").find(named), std::string::npos) << log_of("stokerd");
    EXPECT_NE(log_of("stokerd").find(flag), std::string::npos) << log_of("stokerd");
    EXPECT_EQ(checkpoints(run_dir()), before) << "the rejected start changed something";
    EXPECT_EQ(train(config, run_dir(), joined(changed, {flag})).code, 0) << log_of("stokerd");
    EXPECT_NE(log_of("stokerd").find("incompatible change accepted"), std::string::npos);
    EXPECT_EQ(newest_step(run_dir()), 160u);
    EXPECT_EQ(train(config, run_dir(), joined(changed, {"--set", "train.max_steps=170"})).code, 0)
        << "the accepted change is not stored: " << log_of("stokerd");
  }
  json::object manifest(uint64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%09llu", static_cast<unsigned long long>(step));
    return json::parse(text_of(run_dir() + "/checkpoints/" + name + "/manifest.json")).as_object();
  }
};

TEST_F(ResumeTest, DoesNotCountStartsRejectedForChange) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=80"}).code, 0);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(train(config, run_dir(), {"--set", "train.micro_batch_size=32"}).code, 78) << i;
  EXPECT_EQ(train(config, run_dir(), {"--set", "train.max_steps=160"}).code, 0)
      << log_of("stokerd");
  EXPECT_NE(log_of("stokerd").find("setting changed key=train.max_steps previous=80 current=160"),
            std::string::npos)
      << log_of("stokerd");
}

TEST_F(ResumeTest, WarnsOfOtherNumberOfThreads) {
  const std::string config = write_config(small_config());
  const std::string more = std::to_string(num_usable_cores() + 1);
  ASSERT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=20", "--set", "train.num_threads=" + more})
                .code,
            0);
  ASSERT_EQ(
      train(config, run_dir(), {"--set", "train.max_steps=40", "--set", "train.num_threads=null"})
          .code,
      0);
  EXPECT_EQ(count_of(log_of("stokerd"), "thread count changed previous=" + more), 1u)
      << log_of("stokerd");
  ASSERT_EQ(
      train(config, run_dir(), {"--set", "train.max_steps=60", "--set", "train.num_threads=null"})
          .code,
      0);
  EXPECT_EQ(count_of(log_of("stokerd"), "thread count changed"), 1u) << "the same cores";
}

TEST_F(ResumeTest, RecordsMachineOfEachCheckpoint) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=80"}).code, 0);
  EXPECT_EQ(manifest(80).at("processor").as_string(), describe_processor());
  EXPECT_EQ(manifest(80).at("system").as_string(), describe_system());
  EXPECT_EQ(manifest(80).at("device").as_string(), "cpu");
  EXPECT_EQ(manifest(80).at("num_threads").to_number<int>(), 1);
  ASSERT_EQ(
      train(config, run_dir(), {"--set", "train.max_steps=160", "--set", "train.num_threads=2"})
          .code,
      0)
      << log_of("stokerd");
  EXPECT_EQ(manifest(160).at("num_threads").to_number<int>(), 2);
}

TEST_F(ResumeTest, AcceptsBatchSizeChangeWithFlag) {
  expect_accepted_with_flag("--allow-batch-change", {"--set", "train.micro_batch_size=32"},
                            "train.micro_batch_size: 16 -> 32");
  // 80 batches of 16 samples are 40 batches of 32; then one per step.
  EXPECT_EQ(manifest(160).at("next_ticket").to_number<uint64_t>(), 40u + 80u);
}

TEST_F(ResumeTest, ChecksConfigurationAgainstRun) {
  const std::string config = write_config(small_config());
  const auto check = [&](const std::vector<std::string>& more) {
    fs::remove(path("check.out"));
    Process process(joined({program("stokerd"), "--config", config, "--run-dir", run_dir(), "--set",
                            "train.micro_batch_size=8", "--check-config"},
                           more),
                    path("check.out"));
    EXPECT_EQ(code_of(process), 0);
    return text_of(path("check.out"));
  };
  constexpr const char* kWarning = "warning: ";
  EXPECT_THAT(check({}), ::testing::Not(::testing::HasSubstr(kWarning))) << "there is no run";
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=4"}).code, 0);
  EXPECT_THAT(check({}), ::testing::AllOf(::testing::HasSubstr(kWarning),
                                          ::testing::HasSubstr("micro_batch_size: 16 -> 8"),
                                          ::testing::HasSubstr("--allow-batch-change")));
  for (const char* const allowed : {"--allow-batch-change", "--fresh"})
    EXPECT_THAT(check({allowed}), ::testing::Not(::testing::HasSubstr(kWarning))) << allowed;
}

// One epoch of 96 samples: 4 steps of 2 x 8, then 2 of 1 x 16.
TEST_F(ResumeTest, ShowsWhatEachStepWasTrainedOnAfterBatchSizeChange) {
  const std::string config = write_config(R"(
data: {train: {format: synthetic, num_samples: 96, input_shape: [4], num_classes: 2}}
model: {name: mlp, hidden_sizes: [4]}
task: {name: classification}
eval: {datasets: []}
checkpoint: {save_every_steps: 2, keep_last: 9}
metrics: {log_every_steps: 1, tensorboard: false}
train: {max_steps: 4, micro_batch_size: 8, gradient_accumulation_steps: 2, device: cpu, num_threads: 1}
)");
  const auto samples_of = [&](uint64_t step) {
    std::vector<uint64_t> samples;
    fs::remove(path("show-batch.out"));  // Process appends to the file
    const auto exit =
        ctl(run_dir(), {"--json", "show-batch", std::to_string(step)}, "show-batch").wait(30s);
    EXPECT_TRUE(exit && exit->code == 0) << log_of("show-batch");
    const json::value shown = json::parse(log_of("show-batch"));
    for (const json::value& sample : shown.at("samples").as_array())
      samples.push_back(sample.at("sample").to_number<uint64_t>());
    return samples;
  };
  const auto steps = [&](uint64_t last) {
    std::vector<std::vector<uint64_t>> all;
    for (uint64_t step = 1; step <= last; ++step) all.push_back(samples_of(step));
    return all;
  };
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const auto before = steps(4);
  const std::vector<std::string> change{"--set", "train.micro_batch_size=16",
                                        "--set", "train.gradient_accumulation_steps=1",
                                        "--set", "train.max_steps=6"};
  ASSERT_EQ(train(config, run_dir(), joined(change, {"--allow-batch-change"})).code, 0)
      << log_of("stokerd");
  ASSERT_EQ(train(config, run_dir(), joined(change, {"--set", "train.max_steps=7"})).code, 0);
  const auto after = steps(6);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
  std::set<uint64_t> epoch;
  for (const auto& step : after) epoch.insert(step.begin(), step.end());
  EXPECT_EQ(epoch.size(), 96u) << "each sample once";
  std::vector<uint64_t> seen;
  std::istringstream records(text_of(run_dir() + "/metrics/train.jsonl"));
  for (std::string line; std::getline(records, line);)
    seen.push_back(json::parse(line).at("samples_seen").to_number<uint64_t>());
  EXPECT_EQ(seen, (std::vector<uint64_t>{16, 32, 48, 64, 80, 96, 112}));
  // Before the change, it is undone.
  ASSERT_EQ(train(config, run_dir(),
                  {"--allow-batch-change", "--resume", run_dir() + "/checkpoints/step-000000002"})
                .code,
            0)
      << log_of("stokerd");
  EXPECT_EQ(steps(4), before);
}

TEST_F(ResumeTest, AcceptsGradientAccumulationChangeWithFlag) {
  expect_accepted_with_flag("--allow-batch-change",
                            {"--set", "train.gradient_accumulation_steps=2"},
                            "train.gradient_accumulation_steps: 1 -> 2");
  EXPECT_EQ(manifest(160).at("next_ticket").to_number<uint64_t>(), 80u + 2 * 80u);
}

TEST_F(ResumeTest, AcceptsSampleOrderChangeWithFlag) {
  expect_accepted_with_flag("--allow-data-change", {"--set", "run.seed=9"}, "run.seed: 1 -> 9");
}

TEST_F(ResumeTest, AcceptsDataChangeWithFlag) {
  expect_accepted_with_flag("--allow-data-change", {"--set", "data.train.num_samples=3000"},
                            "data.train.num_samples: 5000 -> 3000");
}

// File contents are identified by their fingerprint, not by path.
TEST_F(ResumeTest, DetectsDataChangedUnderSamePath) {
  const std::string config = write_config(text_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=20"}).code, 0);
  std::ofstream(path("corpus.txt"), std::ios::app) << "one more line, and the text is another\n";
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_NE(log_of("stokerd").find("data.train: fingerprint"), std::string::npos)
      << log_of("stokerd");
  EXPECT_EQ(train(config, run_dir(), {"--allow-data-change"}).code, 0) << log_of("stokerd");
}

TEST_F(ResumeTest, AcceptsModelChangeWithFlag) {
  expect_accepted_with_flag("--allow-model-change", {"--set", "model.hidden_sizes=[32, 8]"},
                            "model.hidden_sizes: [32] -> [32, 8]");
  EXPECT_NE(log_of("stokerd").find("checkpoint partially loaded"), std::string::npos)
      << log_of("stokerd");
}

TEST_F(ResumeTest, AcceptsOptimizerChangeWithFlag) {
  expect_accepted_with_flag("--allow-model-change",
                            {"--set", "optimizer.name=sgd", "--set", "optimizer.momentum=0.9"},
                            "optimizer.name: adamw -> sgd");
}

TEST_F(ResumeTest, AcceptsWorldSizeChangeWithFlag) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  // As if saved by a release that trains with several trainers.
  const std::string folder = run_dir() + "/checkpoints/step-000000040/";
  std::string manifest = text_of(folder + "manifest.json");
  manifest.replace(manifest.find(R"("world_size":1)"), 14, R"("world_size":4)");
  std::ofstream(folder + "manifest.json") << manifest;
  ASSERT_EQ(
      std::system(
          ("cd " + folder + " && sha256sum *.safetensors manifest.json > SHA256SUMS").c_str()),
      0);
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_NE(log_of("stokerd").find("trainers: 4 -> 1"), std::string::npos) << log_of("stokerd");
  EXPECT_NE(log_of("stokerd").find("--allow-world-size-change"), std::string::npos);
  EXPECT_EQ(train(config, run_dir(), {"--allow-world-size-change"}).code, 0) << log_of("stokerd");
}

// `systemctl restart` is SIGTERM followed by the same command.
TEST_F(ResumeTest, LosesAndRepeatsNoStepOnPlannedRestart) {
  const std::string config = write_config(small_config());
  // Fewer records than the metrics queue holds, so that none is dropped if the disk stalls.
  const std::vector<std::string> more_steps{"--set", "train.max_steps=40000",
                                            "--set", "checkpoint.save_every_steps=null",
                                            "--set", "metrics.log_every_steps=47"};
  ASSERT_EQ(train(config, run_dir("uninterrupted"), more_steps).code, 0);
  uint64_t left_at = 0;
  {
    Process trainer = this->trainer(config, run_dir(), more_steps);
    ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 5; }));
    trainer.signal(SIGTERM);
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0);
    left_at = newest_step(run_dir());
    EXPECT_GT(left_at, 5 * 47u);
    EXPECT_LT(left_at, 40000u) << "the run ended before the signal";
  }
  ASSERT_EQ(train(config, run_dir(), more_steps).code, 0);
  EXPECT_NE(log_of("stokerd").find("run resumed step=" + std::to_string(left_at)),
            std::string::npos)
      << log_of("stokerd");
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")));
  EXPECT_EQ(model_sha256(run_dir(), 40000), model_sha256(run_dir("uninterrupted"), 40000));
}

// Event files of a run that was killed repeatedly, read by TensorBoard's own loader.
TEST_F(ResumeTest, WritesNoDuplicateTensorBoardPointsAfterKills) {
  const char* const python = ::getenv("STOKER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "STOKER_PYTHON is not set to a Python with tensorboard";
  const std::string config = write_config(small_config());
  const std::vector<std::string> more_steps{
      "--set", "train.max_steps=60000",           "--set", "model.hidden_sizes=[64]",
      "--set", "checkpoint.save_every_steps=500", "--set", "metrics.log_every_steps=100"};
  for (int attempt = 0; attempt < 4; ++attempt) {
    const uint64_t from = newest_step(run_dir());
    Process trainer = this->trainer(config, run_dir(), more_steps);
    // Past a checkpoint, so that there are points to discard.
    ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) > from; }));
    const size_t rows = num_records(run_dir());
    ASSERT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > rows + 3; }));
    (void)trainer.kill();
  }
  ASSERT_EQ(train(config, run_dir(), more_steps).code, 0);
  EXPECT_NE(log_of("stokerd").find("run resumed step="), std::string::npos)
      << "the run had ended before";
  Process loader({python, STOKER_READ_EVENTS_PY, run_dir() + "/tensorboard"}, path("events.out"));
  const auto read = loader.wait(120s);
  ASSERT_TRUE(read.has_value());
  if (read->code == 77) GTEST_SKIP() << "no tensorboard";
  ASSERT_EQ(read->code, 0) << log_of("events");
  const std::string printed = log_of("events");
  const json::object events = json::parse(printed.substr(printed.find('{'))).as_object();
  std::vector<uint64_t> due;
  for (uint64_t step = 100; step <= 60000; step += 100) due.push_back(step);
  for (const char* const kind : {"scalars", "page_scalars"}) {
    std::vector<uint64_t> steps;
    for (const json::value& point : events.at(kind).as_object().at("loss").as_array())
      steps.push_back(point.as_array().at(0).to_number<uint64_t>());
    EXPECT_EQ(steps, due) << kind << " has duplicate, missing or unordered points";
  }
}

}  // namespace
}  // namespace stoker::test
