// Image captioning from files to metrics: a captioner learns to describe drawn shapes; one that is
// trained in two phases keeps its encoder in the first, and is resumed exactly on both sides of the
// boundary when it is killed.
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::Not;

class CaptioningRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (std::system("python3 -c 'import zlib' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
  }
  void draw_shapes(int train_images, int val_images) const {
    Process script({"python3", STOKER_MAKE_SHAPES, path("shapes"), std::to_string(train_images),
                    std::to_string(val_images)},
                   path("shapes.out"));
    const auto ended = script.wait(60s);
    ASSERT_TRUE(ended && ended->code == 0) << text_of(path("shapes.out"));
  }
  std::string dataset(const std::string& name) const {
    return name + ": {format: image_list, path: " + path("shapes/" + name + ".jsonl") +
           ", fields: {caption: captions}, tokenizer: {path: " + path("shapes/words.txt") +
           "}, sequence: {max_captions: 1}, transforms: [resize: {size: [32, 32]}]}\n";
  }
  std::string config(const std::string& decoder, const std::string& model,
                     const std::string& more) const {
    return write_config(
        "data:\n  " + dataset("train") + "  " + dataset("val") +
        "model: {name: captioner, encoder: {name: resnet8}, max_length: 10, decoder: "
        "{hidden_size: 64, dropout: 0.1, " +
        decoder + "}" + model + "}\ntask: {name: captioning}\n" + more);
  }
  std::map<std::string, double> evaluated() const {
    Process evaluator = this->evaluator(run_dir(), {"--once"});
    const auto ended = evaluator.wait(120s);
    EXPECT_TRUE(ended && ended->code == 0) << log_of("stoker-eval");
    const auto metrics = newest_result(run_dir()).metrics;
    return {metrics.begin(), metrics.end()};
  }
  // The parameters and statistics of the encoder in a checkpoint.
  static std::map<std::string, std::vector<std::byte>> encoder_of(const std::string& folder) {
    std::map<std::string, std::vector<std::byte>> tensors;
    const auto file = checkpoint::SafetensorsFile::open(folder + "/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    if (!file.ok()) return tensors;
    for (const TensorSpec& spec : (*file)->tensors()) {
      if (!spec.name.starts_with("encoder.")) continue;
      std::vector<std::byte>& bytes = tensors[spec.name];
      bytes.resize(spec.bytes());
      EXPECT_TRUE((*file)->read(spec.name, bytes).ok()) << spec.name;
    }
    return tensors;
  }
};

TEST_F(CaptioningRunTest, LearnsToDescribeShapes) {
  draw_shapes(800, 116);
  const std::string config = this->config(
      "name: transformer, num_heads: 4", "",
      "optimizer: {name: adamw, lr: 2.0e-3}\nscheduler: {name: cosine, warmup_steps: 20}\n"
      "train: {max_steps: 150, micro_batch_size: 32, num_threads: 1}\neval: {monitor: "
      "exact_match}\n");
  const auto ended = trainer(config, run_dir(), {}).wait(240s);
  ASSERT_TRUE(ended && ended->code == 0) << log_of("stokerd");
  const auto metrics = evaluated();
  // A model that does not see the image, but knows the form of the captions, has a loss of 0.67,
  // and about half of the words.
  std::cout << "exact_match " << metrics.at("exact_match") << ", bleu_1 " << metrics.at("bleu_1")
            << ", loss " << metrics.at("loss") << "\n";
  EXPECT_LT(metrics.at("loss"), 0.5);
  EXPECT_GT(metrics.at("bleu_1"), 0.75);
  EXPECT_GT(metrics.at("cider_d"), 2);
  const std::string table = text_of(run_dir() + "/eval/artifacts/step-000000150.val.captions.md");
  EXPECT_THAT(table, HasSubstr("](step-000000150.val.captions.png)"));
  EXPECT_THAT(table, HasSubstr("/val/00000.png |"));
  EXPECT_THAT(text_of(run_dir() + "/eval/artifacts/step-000000150.val.captions.png"),
              HasSubstr("PNG"));
}

TEST_F(CaptioningRunTest, ResumesExactlyOnBothSidesOfUnfreezing) {
  draw_shapes(400, 58);
  constexpr uint64_t kUnfrozen = 100;
  const std::string config = this->config(
      "name: lstm", ", freeze: [\"encoder.*\"], unfreeze_at_step: 100",
      "optimizer: {name: adamw, lr: 1.0e-3, param_groups: [{params: \"encoder.*\", lr_scale: "
      "0.1}]}\n"
      "scheduler: {name: constant, warmup_steps: 20}\n"
      "train: {micro_batch_size: 8, num_threads: 1, ema_decay: 0.9}\n"
      "checkpoint: {save_every_steps: 20, keep_last: 1000}\nmetrics: {log_every_steps: 3}\n");
  const auto until = [](uint64_t step) -> std::vector<std::string> {
    return {"--set", "train.max_steps=" + std::to_string(step)};
  };
  // Kills after new checkpoints, until one was on the other side.
  std::vector<uint64_t> killed;  // steps of the newest checkpoints
  while (killed.empty() || killed.back() < kUnfrozen) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config, run_dir(), until(100'000'000));
    ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before).has_value())
        << log_of("stokerd");
    ASSERT_TRUE(trainer.kill());
    killed.push_back(newest_step(run_dir()));
  }
  EXPECT_THAT(killed, Contains(AllOf(Gt(0), Lt(kUnfrozen))));
  EXPECT_THAT(killed, Contains(Ge(kUnfrozen)));
  const uint64_t last = killed.back() + 60;
  ASSERT_EQ(train(config, run_dir(), until(last)).code, 0) << log_of("stokerd");
  ASSERT_EQ(train(config, run_dir("uninterrupted"), until(last)).code, 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("parameters unfrozen step=100"));
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("uninterrupted"), last));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")));
  // By step. A save is skipped while the one before has not ended.
  std::map<uint64_t, std::string> saved;
  for (const auto& entry :
       std::filesystem::directory_iterator(run_dir("uninterrupted") + "/checkpoints"))
    if (const std::string name = entry.path().filename(); name.starts_with("step-"))
      saved[std::stoull(name.substr(5))] = entry.path();
  const auto after = saved.upper_bound(kUnfrozen);
  ASSERT_TRUE(after != saved.begin() && after != saved.end());
  const auto first = encoder_of(saved.begin()->second),
             frozen = encoder_of(std::prev(after)->second), trained = encoder_of(after->second);
  EXPECT_THAT(first, Not(IsEmpty()));
  EXPECT_TRUE(frozen == first) << "unchanged until it is unfrozen";
  for (const auto& [name, bytes] : trained) EXPECT_TRUE(bytes != frozen.at(name)) << name;
}

}  // namespace
}  // namespace stoker::test
