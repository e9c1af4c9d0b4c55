// A run that trains an adapter: from pretrained weights to evaluation and export, kills, and
// pretrained weights that changed.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LoraRunTest : public RunTest {
 protected:
  // A small gpt, whose last checkpoint is what the adapters belong to.
  void SetUp() override {
    RunTest::SetUp();
    config_ = write_config(text_config());
    ASSERT_EQ(train(config_, run_dir("base")).code, 0) << log_of("stokerd");
  }
  std::string base() const { return path("base/checkpoints/step-000000060"); }
  std::vector<std::string> lora(const std::vector<std::string>& more = {}) const {
    return joined({"--set", "model.pretrained.path=" + base(), "--set",
                   "model.lora={r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: "
                   "all-linear, modules_to_save: [head]}"},
                  more);
  }
  void train_adapter(const std::vector<std::string>& more = {}) const {
    ASSERT_EQ(train(config_, run_dir(), lora(more)).code, 0) << log_of("stokerd");
  }
  double evaluated_loss(const std::string& run) {
    const auto evaluated = evaluator(run, {"--once"}).wait(120s);
    EXPECT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
    const auto metrics = newest_result(run).metrics;
    return std::map<std::string, double>(metrics.begin(), metrics.end()).at("loss");
  }
  void run_ctl(const std::vector<std::string>& command, int code = 0) const {
    const auto ended = ctl(run_dir(), command, "ctl").wait(60s);
    ASSERT_TRUE(ended && ended->code == code) << log_of("ctl");
  }

  std::string config_;  // writes its text once: another time of change is other data
};

TEST_F(LoraRunTest, SavesAdapterWithHashOfPretrainedWeights) {
  train_adapter();
  const std::string checkpoint = run_dir() + "/checkpoints/step-000000060/";
  const std::string header = text_of(checkpoint + "model.safetensors").substr(0, 8000);
  EXPECT_THAT(header, AllOf(HasSubstr("blocks.1.qkv.lora_A.weight"), HasSubstr("head.weight"),
                            Not(HasSubstr("blocks.1.qkv.weight")), Not(HasSubstr("tok.weight"))));
  EXPECT_THAT(text_of(checkpoint + "optimizer.safetensors").substr(0, 8000),
              Not(HasSubstr("tok.weight")));
  EXPECT_THAT(text_of(checkpoint + "manifest.json"),
              HasSubstr(R"("base_weights":{"path":")" + base() + R"(","sha256":")"));
}

// The merged model, as pretrained weights of a run without model.lora, has the loss of the adapter.
TEST_F(LoraRunTest, EvaluatesAndMergesAdapter) {
  train_adapter();
  const double loss = evaluated_loss(run_dir());
  EXPECT_LT(loss, evaluated_loss(run_dir("base")));
  run_ctl({"export", "latest", "--merge", "--output", path("merged.safetensors")});
  ASSERT_EQ(train(config_, run_dir("merged"),
                  {
                      "--set",
                      "model.pretrained.path=" + path("merged.safetensors"),
                      "--set",
                      "train.max_steps=1",
                      "--set",
                      "optimizer.lr=1e-12",
                  })
                .code,
            0)
      << log_of("stokerd");
  EXPECT_NEAR(evaluated_loss(run_dir("merged")), loss, 1e-5 * loss);
}

TEST_F(LoraRunTest, ExportsFolderOfPeftThatAnotherRunStartsFrom) {
  train_adapter();
  run_ctl({"export", "latest", "--output", path("adapter")});
  EXPECT_THAT(
      text_of(path("adapter/adapter_config.json")),
      AllOf(HasSubstr(R"("r":2,"lora_alpha":4)"), HasSubstr(R"("modules_to_save":["head"])"),
            HasSubstr(R"("target_modules":["down","proj","qkv","up"])")));
  EXPECT_THAT(text_of(path("adapter/adapter_model.safetensors")).substr(0, 8000),
              HasSubstr("base_model.model.blocks.0.down.lora_B.weight"));
  const double loss = evaluated_loss(run_dir());
  ASSERT_EQ(train(config_, run_dir("second"),
                  {"--set", "model.pretrained.path=" + base(), "--set",
                   "model.lora.path=" + path("adapter"), "--set", "train.max_steps=1", "--set",
                   "optimizer.lr=1e-12"})
                .code,
            0)
      << log_of("stokerd");
  EXPECT_NEAR(evaluated_loss(run_dir("second")), loss, 1e-5 * loss);
  EXPECT_EQ(train(config_, run_dir("second"),
                  {"--set", "model.pretrained.path=" + base(), "--set",
                   "model.lora.path=" + path("adapter"), "--set", "train.max_steps=2", "--set",
                   "optimizer.lr=1e-12"})
                .code,
            0)
      << log_of("stokerd");
  fs::remove_all(path("adapter"));  // is not needed to resume with the settings of the run
  EXPECT_EQ(
      train(run_dir("second") + "/config.yaml", run_dir("second"), {"--set", "train.max_steps=3"})
          .code,
      0)
      << log_of("stokerd");
}

TEST_F(LoraRunTest, RejectsAdapterWithoutModelLoraWhateverIsAllowed) {
  train_adapter({"--set", "train.max_steps=20"});
  EXPECT_EQ(train(config_, run_dir(),
                  {"--allow-model-change", "--set", "model.pretrained.path=" + base()})
                .code,
            78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("model.lora was added to the run or removed from it"));
  EXPECT_NE(train(config_, run_dir("third"),
                  {"--set", "model.pretrained.path=" + run_dir() + "/checkpoints/step-000000020"})
                .code,
            0);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("has an adapter only"));
}

// By the scale that the checkpoint has, whatever config.yaml has become.
TEST_F(LoraRunTest, MergesWithTheScaleOfTheCheckpoint) {
  train_adapter({"--set", "train.max_steps=20"});
  run_ctl({"export", "latest", "--merge", "--output", path("before.safetensors")});
  const std::string config = run_dir() + "/config.yaml";
  std::string text = text_of(config);
  const size_t at = text.find("lora_alpha: 4");
  ASSERT_NE(at, std::string::npos) << text;
  std::ofstream(config) << text.replace(at, 13, "lora_alpha: 40");
  run_ctl({"export", "latest", "--merge", "--output", path("after.safetensors")});
  EXPECT_THAT(log_of("ctl"), HasSubstr("was changed since the checkpoint was saved"));
  EXPECT_EQ(text_of(path("before.safetensors")), text_of(path("after.safetensors")));
  const auto evaluated = evaluator(run_dir(), {"--once"}).wait(120s);
  ASSERT_TRUE(evaluated && evaluated->code == 65);
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr("another model.lora.r or lora_alpha"));
}

TEST_F(LoraRunTest, RejectsOptionsOfExportThatDoNotFit) {
  train_adapter();
  run_ctl({"export", "latest", "--format", "peft", "--merge"}, 78);
  EXPECT_THAT(log_of("ctl"), HasSubstr("--format peft writes the weights of an adapter"));
}

TEST_F(LoraRunTest, RejectsChangedOrMissingPretrainedWeights) {
  train_adapter({"--set", "train.max_steps=20"});
  // The same weights elsewhere are fine.
  fs::rename(path("base"), path("moved"));
  EXPECT_NE(train(config_, run_dir(), lora()).code, 0);
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("model.pretrained.path"), HasSubstr(base())));
  ASSERT_EQ(train(config_, run_dir(),
                  lora({"--set", "train.max_steps=40", "--set",
                        "model.pretrained.path=" + path("moved/checkpoints/step-000000060")}))
                .code,
            0)
      << log_of("stokerd");
  const std::string other = path("moved/checkpoints/step-000000020");
  EXPECT_EQ(train(config_, run_dir(), lora({"--set", "model.pretrained.path=" + other})).code, 78);
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("model.pretrained.path: sum of the weights that the adapter belongs to"));
  const auto evaluated = evaluator(run_dir(), {"--once", "--set", "model.pretrained.path=" + other,
                                               "--set", "eval.max_attempts=1"})
                             .wait(120s);
  ASSERT_TRUE(evaluated && evaluated->code == 78);
  EXPECT_THAT(log_of("stoker-eval"),
              HasSubstr("was trained with another model.pretrained.path, SHA-256"));
}

TEST_F(LoraRunTest, MatchesUninterruptedRunAfterKills) {
  const auto until = [this](uint64_t step) {
    return lora({"--set", "train.max_steps=" + std::to_string(step), "--set", "train.ema_decay=0.9",
                 "--set", "optimizer.layer_decay=0.9"});
  };
  for (int kill = 0; kill < 3; ++kill) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config_, run_dir(), until(100'000'000));
    ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before).has_value())
        << log_of("stokerd");
    ASSERT_TRUE(trainer.kill());
  }
  const uint64_t last = newest_step(run_dir()) + 50;
  for (const std::string& run : {run_dir(), run_dir("uninterrupted")})
    ASSERT_EQ(train(config_, run, until(last)).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("uninterrupted"), last));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")));
}

}  // namespace
}  // namespace stoker::test
