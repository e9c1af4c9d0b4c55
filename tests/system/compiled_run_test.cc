// Runs of a Python module that was compiled with its loss: model.name: compiled.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/support/python_script.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CompiledRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (!fs::exists(STOKER_COMPILED "/mlp/manifest.json"))
      GTEST_SKIP() << "there is no package: StokerExport.Package needs a Python with PyTorch";
    fs::copy(STOKER_COMPILED "/mlp", path("mlp"));
    std::string text = small_config(
        "train: {max_steps: 80, micro_batch_size: 16, device: cpu, "
        "num_threads: 1}\n");
    const auto replace = [&](const std::string& from, const std::string& to) {
      const size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    };
    replace("train: {max_steps: 400, micro_batch_size: 16, device: cpu, num_threads: 1}\n", "");
    replace("model: {name: mlp, hidden_sizes: [32], dropout: 0.1}",
            "model: {name: compiled, path: " + path("mlp/manifest.json") + "}");
    replace("scheduler: {name: cosine, warmup_steps: 10, min_lr: 0.0001}",
            "scheduler: {name: constant}");
    config_ = write_config(text);
  }
  int evaluate(const std::string& run) const {
    const auto exit = evaluator(run, {"--once"}).wait(90s);
    return exit ? exit->code : -1;
  }
  // The error with which a run of the configuration with these changes ends; one line.
  std::string error_with(const std::vector<std::string>& changes) const {
    std::vector<std::string> arguments;
    for (const std::string& change : changes) {
      arguments.emplace_back("--set");
      arguments.push_back(change);
    }
    EXPECT_EQ(train(config_, run_dir("rejected"), arguments).code, 78) << log_of("stokerd");
    EXPECT_TRUE(checkpoints(run_dir("rejected")).empty());
    return log_of("stokerd");
  }

  std::string config_;
};

// Kills after a checkpoint was saved, twenty in scripts/fault_tests.sh: the run ends with the bytes of an undisturbed one,
// dropout and batch norm included.
TEST_F(CompiledRunTest, EndsWithTheSameBytesAfterKills) {
  const std::vector<std::string> steps{"--set", "train.max_steps=1200", "--set",
                                       "checkpoint.save_every_steps=20"};
  ASSERT_EQ(train(config_, run_dir("undisturbed"), steps).code, 0) << log_of("stokerd");
  const int kills = is_full_test() ? 20 : 3;
  for (int kill = 0; kill < kills; ++kill) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config_, run_dir(), steps);
    const auto ended = wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before);
    ASSERT_FALSE(ended) << log_of("stokerd");
    ASSERT_EQ(::kill(trainer.pid(), SIGKILL), 0);
    trainer.wait(30s);
  }
  ASSERT_EQ(train(config_, run_dir(), steps).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), 1200), model_sha256(run_dir("undisturbed"), 1200));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("undisturbed")));
}

TEST_F(CompiledRunTest, LearnsAndIsEvaluatedAndLoadsIntoPython) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=400"}).code, 0)
      << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("compiled model tested"));
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const run::DatasetResult result = newest_result(run_dir());
  const auto value = [&](const std::string& name) {
    for (const auto& [each, number] : result.metrics)
      if (each == name) return number;
    ADD_FAILURE() << "no " << name;
    return 0.0;
  };
  EXPECT_GT(value("accuracy"), 0.9) << "four classes";
  Process exporter =
      ctl(run_dir(), {"export", "400", "--output", path("out.pt"), "--format", "torch"}, "ctl");
  ASSERT_EQ(exporter.wait(30s)->code, 0) << log_of("ctl");
  const auto loaded = try_run_python(STOKER_LOAD_EXPORT_PY, {path("out.pt")});
  if (!loaded) GTEST_SKIP() << "there is no Python with PyTorch (set STOKER_PYTHON)";
  EXPECT_EQ(loaded->code, 0) << loaded->err;
}

TEST_F(CompiledRunTest, ReportsTheLossAloneWithTaskCustom) {
  ASSERT_EQ(train(config_, run_dir(), {"--set", "task.name=custom"}).code, 0) << log_of("stokerd");
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const run::DatasetResult custom = newest_result(run_dir());
  ASSERT_EQ(custom.metrics.size(), 1u);
  EXPECT_EQ(custom.metrics[0].first, "loss");
  ASSERT_EQ(train(config_, run_dir("scored")).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), 80), model_sha256(run_dir("scored"), 80))
      << "the task does not change training";
  ASSERT_EQ(evaluate(run_dir("scored")), 0) << log_of("stoker-eval");
  EXPECT_NEAR(custom.metrics[0].second, newest_result(run_dir("scored")).metrics[0].second, 1e-5);
}

TEST_F(CompiledRunTest, AccumulatesMicroBatchesAndFreezesParameters) {
  ASSERT_EQ(train(config_, run_dir(),
                  {"--set", "train.gradient_accumulation_steps=2", "--set",
                   "model.freeze=[hidden.*]", "--set", "train.ema_decay=0.9"})
                .code,
            0)
      << log_of("stokerd");
  ASSERT_EQ(evaluate(run_dir()), 0) << log_of("stoker-eval");
  const auto tensor_of = [](const std::string& file, const std::string& name) {
    const auto opened = checkpoint::SafetensorsFile::open(file);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    std::vector<std::byte> bytes((*opened)->find(name)->bytes());
    EXPECT_TRUE((*opened)->read(name, bytes).ok());
    return bytes;
  };
  const std::string start = path("mlp/model.safetensors");
  const std::string saved = run_dir() + "/checkpoints/latest/";
  EXPECT_EQ(tensor_of(saved + "model.safetensors", "hidden.weight"),
            tensor_of(start, "hidden.weight"));
  EXPECT_NE(tensor_of(saved + "model.safetensors", "out.weight"), tensor_of(start, "out.weight"));
  EXPECT_NE(tensor_of(saved + "ema.safetensors", "out.weight"),
            tensor_of(saved + "model.safetensors", "out.weight"));
}

TEST_F(CompiledRunTest, RejectsWhatDoesNotFitWithOneLine) {
  EXPECT_THAT(error_with({"train.precision=bf16"}), HasSubstr("was exported for fp32"));
  EXPECT_THAT(error_with({"train.micro_batch_size=65"}), HasSubstr("for batches of 1 to 64"));
  EXPECT_THAT(error_with({"data.train.input_shape=[31]", "data.val.input_shape=[31]"}),
              HasSubstr("the data has F32 [31]"));
  EXPECT_THAT(error_with({"train.channels_last=true"}), HasSubstr("train.channels_last"));
  EXPECT_THAT(error_with({"model.path=" + path("mlp")}),
              HasSubstr("is a folder: name its manifest.json"));
  EXPECT_THAT(error_with({"model.name=mlp", "task.name=custom"}), HasSubstr("task.name"));
}

}  // namespace
}  // namespace stoker::test
