// --set KEY=VALUE.
#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(OverrideTest, WinsOverFile) {
  EXPECT_EQ(
      valid_config(kTextData + "train: {max_steps: 5}\n", {"train.max_steps=7"}).train.max_steps,
      7u);
  EXPECT_EQ(valid_config(kTextData, {"train.max_steps=7"}).train.max_steps, 7u);
}

TEST(OverrideTest, AppliesLastOneOfKey) {
  EXPECT_EQ(valid_config(kTextData,
                         {"train.max_steps=7", "train.micro_batch_size=2", "train.max_steps=8"})
                .train.max_steps,
            8u);
}

TEST(OverrideTest, ReadsValueAsYaml) {
  const Config config = valid_config(
      kTextData, {"data.train.split=[0, 0.5]", "model.freeze=[\"a=b\", c]", "run.dir= runs/x ",
                  "control.socket=\"\\u0061\"", "data.val={format: text, path: \"b c\"}"});
  EXPECT_EQ(config.data.at("train").split, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(config.model.freeze, (std::vector<std::string>{"a=b", "c"}));
  EXPECT_EQ(config.run.dir, "runs/x");
  EXPECT_EQ(config.control.socket, "a");
  EXPECT_EQ(config.data.at("val").path(), "b c");
  EXPECT_EQ(config.eval.datasets, (std::vector<std::string>{"val"}));
}

TEST(OverrideTest, FormsConfigurationWithoutFile) {
  EXPECT_EQ(
      valid_config("", {"data.train.path=corpus.txt", "data.train.format=text", "model.name=gpt"}),
      valid_config(kTextData));
}

TEST(OverrideTest, ReplacesSectionAsWhole) {
  const Config config = valid_config(kTextData + "optimizer: {name: sgd, momentum: 0.5}\n",
                                     {"optimizer={name: adam}"});
  EXPECT_EQ(config.optimizer.name(), OptimizerName::kAdam);
}

TEST(OverrideTest, ReachesIntoNestedMappings) {
  const Config config = valid_config(
      kTextData + "eval: {early_stopping: {patience: 3, min_delta: 1}}\n",
      {"eval.early_stopping.patience=5", "eval.generate.prompt=x", "model.pretrained.path=w.pt"});
  EXPECT_EQ(config.eval.early_stopping.patience, 5u);
  EXPECT_EQ(config.eval.early_stopping.min_delta, 1);
  EXPECT_EQ(config.eval.generate->prompt, "x");
  EXPECT_EQ(config.eval.generate->max_new_tokens, 200);
  EXPECT_EQ(config.model.pretrained->path, "w.pt");
}

TEST(OverrideTest, EnablesSingleFusedKernels) {
  const std::string text = kTextData + "train: {fused_kernels: {rope: true}}\n";
  EXPECT_EQ(valid_config(text, {"train.fused_kernels.norm=true"}).train.fused_kernels,
            (FusedKernelsConfig{.norm = true, .rope = true}));
  EXPECT_EQ(
      valid_config(text, {"train.fused_kernels={adamw: true, norm: true}"}).train.fused_kernels,
      (FusedKernelsConfig{.adamw = true, .norm = true}));
  EXPECT_EQ(valid_config(kTextData).train.fused_kernels, FusedKernelsConfig());
}

TEST(OverrideTest, RestoresDefaultWithoutValue) {
  const std::string text = kTextData + "train: {max_steps: 5, micro_batch_size: 3}\n";
  EXPECT_EQ(valid_config(text, {"train.max_steps="}).train.max_steps, TrainConfig{}.max_steps);
  EXPECT_EQ(valid_config(text, {"train.max_steps="}).train.micro_batch_size, 3);
  EXPECT_EQ(valid_config(text, {"train="}).train, TrainConfig{});
  EXPECT_EQ(valid_config(kTextData + "scheduler: {min_lr: 1.0e-5}\n",
                         {"scheduler.min_lr=", "scheduler.name=constant"})
                .scheduler.name(),
            SchedulerName::kConstant);
  EXPECT_EQ(valid_config(kTextData, {"model.embed_dim="}), valid_config(kTextData));
  EXPECT_EQ(valid_config(kTextData + "eval: {generate: null}\n", {"eval.generate="}).eval.generate,
            GenerateConfig{});
  EXPECT_EQ(valid_config(kTextData + "train: {max_grad_norm: 5}\n", {"train.max_grad_norm="})
                .train.max_grad_norm,
            TrainConfig{}.max_grad_norm);
}

TEST(OverrideTest, SetsNull) {
  EXPECT_EQ(valid_config(kTextData, {"train.max_grad_norm=null"}).train.max_grad_norm,
            std::nullopt);
  EXPECT_EQ(valid_config(kTextData, {"train.max_grad_norm=~"}).train.max_grad_norm, std::nullopt);
  EXPECT_EQ(valid_config(kTextData, {"eval.generate=null"}).eval.generate, std::nullopt);
  EXPECT_EQ(valid_config(kTextData, {"control.socket=null"}).control.socket, std::nullopt);
  EXPECT_EQ(valid_config(kTextData, {"feed.num_workers=auto"}).feed.num_workers, std::nullopt);
  EXPECT_THAT(errors_of(kTextData, {"train.max_steps=null"}),
              ElementsAre("--set train.max_steps=null: must be an integer from 1 to "
                          "1000000000000000, got null"));
}

TEST(OverrideTest, CorrectsErrorsOfFile) {
  EXPECT_EQ(
      valid_config(kTextData + "train: {max_steps: many}\n", {"train.max_steps=7"}).train.max_steps,
      7u);
  EXPECT_EQ(valid_config(kTextData + "train: 5\n", {"train.max_steps=7"}).train.max_steps, 7u);
}

TEST(OverrideTest, NamesOptionInErrors) {
  EXPECT_THAT(errors_of(kTextData, {"train.max_steps=-1"}),
              ElementsAre(StartsWith("--set train.max_steps=-1: must be an integer from 1")));
  EXPECT_THAT(errors_of(kTextData, {"train.max_stepz=1"}),
              ElementsAre("--set train.max_stepz=1: train: unknown key 'max_stepz'; did you mean "
                          "'max_steps'?"));
  EXPECT_THAT(
      errors_of(kTextData, {"trian.max_steps=1"}),
      ElementsAre("--set trian.max_steps=1: unknown section 'trian'; did you mean 'train'?"));
  EXPECT_THAT(errors_of(kTextData, {"model.hidden_sizes=[5]"}),
              ElementsAre("--set model.hidden_sizes=[5]: not supported by model gpt (only by mlp); "
                          "remove it"));
  EXPECT_THAT(errors_of(kTextData, {"eval.datasets=[x]"}),
              ElementsAre(StartsWith("--set eval.datasets=[x]: contains 'x', which is not")));
  EXPECT_THAT(errors_of(kTextData, {"train=5"}),
              ElementsAre("--set train=5: must be a mapping of settings, got '5'"));
  EXPECT_THAT(
      errors_of(kTextData, {"train.max_steps.more=5"}),
      ElementsAre(StartsWith("--set train.max_steps.more=5: train.max_steps: unknown key 'more'")));
  EXPECT_THAT(errors_of(kTextData, {"train.micro_batch_size.more=5"}),
              ElementsAre(StartsWith(
                  "--set train.micro_batch_size.more=5: train.micro_batch_size: must be an")));
}

TEST(OverrideTest, RejectsTextThatIsNotKeyAndValue) {
  for (const char* const flag :
       {"", "train.max_steps", "=5", ".=5", "train.=5", ".max_steps=5", "a..b=5", "train"}) {
    EXPECT_THAT(errors_of(kTextData, {flag}), ElementsAre(StartsWith("--set " + std::string(flag))))
        << flag;
  }
}

TEST(OverrideTest, ReportsInvalidYamlOnce) {
  for (const char* const value : {"[1, 2", "{a: 1", "\"x", "&a 5", "*a", "!!int 5", "a: b: c",
                                  "{a: 1, a: 2}", "--- 1\n--- 2", "\xff", "5\x01"}) {
    EXPECT_THAT(errors_of(kTextData, {"model.context_length=" + std::string(value)}),
                ElementsAre(StartsWith("--set model.context_length=")))
        << value;
  }
}

TEST(OverrideTest, ReportsErrorsOfFileFirstThenOptionsInOrder) {
  EXPECT_THAT(errors_of(kTextData + "log: {level: x}\n",
                        {"train.micro_batch_size=b", "nonsense", "train.max_steps=a"}),
              ElementsAre(StartsWith("my.yaml:2:"), StartsWith("--set train.micro_batch_size=b"),
                          StartsWith("--set nonsense"), StartsWith("--set train.max_steps=a")));
}

TEST(OverrideTest, RejectsLongKeysAndValues) {
  std::string deep = "a";
  for (int i = 0; i < 1000; ++i) deep += ".a";
  EXPECT_THAT(errors_of(kTextData, {deep + "=1"}), testing::SizeIs(1));
  EXPECT_THAT(errors_of(kTextData, {"run.dir=" + std::string(1 << 20, 'x')}),
              ElementsAre(HasSubstr("longer than 64 KiB")));
  EXPECT_THAT(errors_of(kTextData, {"run.dir=" + std::string(100000, '[')}), testing::SizeIs(1));
}

TEST(OverrideTest, RejectsRemovalOfUnknownKey) {
  EXPECT_THAT(errors_of(kTextData, {"no.such="}),
              ElementsAre(StartsWith("--set no.such=: unknown section 'no'; the sections are ")));
  EXPECT_THAT(errors_of(kTextData, {"train.max_stepz="}),
              ElementsAre("--set train.max_stepz=: train: unknown key 'max_stepz'; did you mean "
                          "'max_steps'?"));
}

TEST(OverrideTest, RemovesDataset) {
  const std::string both =
      "data: {train: {format: text, path: corpus.txt}, val: {format: text, path: b}}\n";
  EXPECT_EQ(valid_config(both, {"data.val="}), valid_config(kTextData));
  EXPECT_EQ(valid_config(both, {"data=", "data.train.path=corpus.txt", "data.train.format=text"}),
            valid_config(kTextData));
  EXPECT_THAT(errors_of(both, {"data.train="}), ElementsAre(HasSubstr("data.train: is required")));
  EXPECT_THAT(errors_of(both, {"data.vla="}),
              ElementsAre("--set data.vla=: is not in the configuration; nothing to remove"));
  EXPECT_EQ(valid_config(both + "eval: {datasets: []}\n", {"eval.datasets="}).eval.datasets,
            (std::vector<std::string>{"val"}));
}

// A run that an earlier release started, when the default was all files.
TEST(KeepStoredGlobsTest, KeepsFormerDefaultUnlessGlobIsSet) {
  const stoker::test::TemporaryDirectory folder;
  const std::string yaml =
      "data: {train: {format: csv, path: a, fields: {label: y}}, "
      "val: {format: csv, path: b, glob: \"*.csv\", fields: {label: y}}}\n"
      "task: {name: classification}\nmodel: {name: mlp}\n";
  SettingOrigins origins;
  const auto parsed = parse_config(yaml, "my.yaml", {}, &origins);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  Config config = *parsed;
  const std::string stored = folder / "config.yaml";
  keep_stored_globs(config, origins, stored);
  EXPECT_EQ(config, *parsed) << "there is no run";
  Config former = *parsed;
  for (auto& [name, dataset] : former.data) std::get<CsvDataset>(dataset.source).glob = "**/*";
  ASSERT_TRUE(write_file_atomically(default_file_system(), stored, to_yaml(former)).ok());
  keep_stored_globs(config, origins, stored);
  EXPECT_EQ(config.data.at("train").glob(), "**/*");
  EXPECT_EQ(config.data.at("val").glob(), "*.csv");
  EXPECT_EQ(digest(config), digest(*parsed));
}

}  // namespace
}  // namespace stoker::config::test
