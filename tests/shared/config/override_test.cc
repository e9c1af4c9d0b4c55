// --set KEY=VALUE.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Override, WinsOverTheFile) {
  EXPECT_EQ(good(kData + "train: {steps: 5}\n", {"train.steps=7"}).train.steps, 7u);
  EXPECT_EQ(good(kData, {"train.steps=7"}).train.steps, 7u);
}

TEST(Override, TheLastOneWins) {
  EXPECT_EQ(good(kData, {"train.steps=7", "train.batch=2", "train.steps=8"}).train.steps, 8u);
}

TEST(Override, TheValueIsYaml) {
  const Config config =
      good(kData, {"data.train.split=[0, 0.5]", "model.freeze=[\"a=b\", c]", "run.dir= runs/x ",
                   "control.socket=\"\\u0061\"", "data.valid={kind: text, path: \"b c\"}"});
  EXPECT_EQ(config.data.at("train").split, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(config.model.freeze, (std::vector<std::string>{"a=b", "c"}));
  EXPECT_EQ(config.run.dir, "runs/x");
  EXPECT_EQ(config.control.socket, "a");
  EXPECT_EQ(config.data.at("valid").path, "b c");
  EXPECT_EQ(config.eval.sets, (std::vector<std::string>{"valid"}));
}

TEST(Override, AloneIsAConfiguration) {
  EXPECT_EQ(good("", {"data.train.path=corpus.txt"}), good(kData));
}

TEST(Override, ASectionTakesThePlaceOfTheWhole) {
  const Config config =
      good(kData + "optimizer: {kind: momentum, momentum: 0.5}\n", {"optimizer={kind: adam}"});
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::kAdam);
}

TEST(Override, NoValueBringsTheDefaultBack) {
  const std::string text = kData + "train: {steps: 5, batch: 3}\n";
  EXPECT_EQ(good(text, {"train.steps="}).train.steps, TrainConfig{}.steps);
  EXPECT_EQ(good(text, {"train.steps=null"}).train.steps, TrainConfig{}.steps);
  EXPECT_EQ(good(text, {"train.steps="}).train.batch, 3);
  EXPECT_EQ(good(text, {"train="}).train, TrainConfig{});
  EXPECT_EQ(
      good(kData + "schedule: {min_lr: 0.1}\n", {"schedule.min_lr=", "schedule.kind=constant"})
          .schedule.kind,
      ScheduleKind::kConstant);
  EXPECT_EQ(good(kData, {"model.width="}), good(kData));
}

TEST(Override, WhatTheFileSaysWrongIsCuredByIt) {
  EXPECT_EQ(good(kData + "train: {steps: many}\n", {"train.steps=7"}).train.steps, 7u);
  EXPECT_EQ(good(kData + "train: 5\n", {"train.steps=7"}).train.steps, 7u);
}

TEST(Override, MistakesNameTheFlag) {
  EXPECT_THAT(mistakes(kData, {"train.steps=-1"}),
              ElementsAre(StartsWith("--set train.steps=-1: is '-1'; it must be")));
  EXPECT_THAT(mistakes(kData, {"train.stepz=1"}),
              ElementsAre("--set train.stepz=1: no such key; did you mean 'steps'?"));
  EXPECT_THAT(mistakes(kData, {"trian.steps=1"}),
              ElementsAre("--set trian.steps=1: trian: no such section; did you mean 'train'?"));
  EXPECT_THAT(mistakes(kData, {"model.hidden=[5]"}),
              ElementsAre(HasSubstr("is not read by kind gpt")));
  EXPECT_THAT(mistakes(kData, {"eval.sets=[x]"}), ElementsAre(StartsWith("--set eval.sets=[x]: ")));
  EXPECT_THAT(mistakes(kData, {"train=5"}), ElementsAre(StartsWith("--set train=5: ")));
  EXPECT_THAT(mistakes(kData, {"train.steps.more=5"}),
              ElementsAre(StartsWith("--set train.steps.more=5: train.steps: is a section")));
}

TEST(Override, WhatIsNoKeyAndValueIsRefused) {
  for (const char* const flag :
       {"", "train.steps", "=5", ".=5", "train.=5", ".steps=5", "a..b=5", "train"}) {
    EXPECT_THAT(mistakes(kData, {flag}), ElementsAre(StartsWith("--set " + std::string(flag))))
        << flag;
  }
}

TEST(Override, ValuesThatAreNoYamlAreRefusedOnce) {
  for (const char* const value : {"[1, 2", "{a: 1", "\"x", "&a 5", "*a", "!!int 5", "a: b: c",
                                  "{a: 1, a: 2}", "--- 1\n--- 2", "\xff", "5\x01"}) {
    EXPECT_THAT(mistakes(kData, {"model.context=" + std::string(value)}),
                ElementsAre(StartsWith("--set model.context=")))
        << value;
  }
}

TEST(Override, MistakesOfTheFileComeFirstThenTheFlagsInTheirOrder) {
  EXPECT_THAT(mistakes(kData + "log: {level: x}\n", {"train.batch=b", "nonsense", "train.steps=a"}),
              ElementsAre(StartsWith("my.yaml:2:"), StartsWith("--set train.batch=b"),
                          StartsWith("--set nonsense"), StartsWith("--set train.steps=a")));
}

TEST(Override, LongKeysAndValuesAreRefused) {
  const std::string deep = "a" + [] {
    std::string parts;
    for (int i = 0; i < 1000; ++i) parts += ".a";
    return parts;
  }();
  EXPECT_THAT(mistakes(kData, {deep + "=1"}), testing::SizeIs(1));
  EXPECT_THAT(mistakes(kData, {"run.dir=" + std::string(1 << 20, 'x')}),
              ElementsAre(HasSubstr("longer than 64 KiB")));
  EXPECT_THAT(mistakes(kData, {"run.dir=" + std::string(100000, '[')}), testing::SizeIs(1));
}

TEST(Override, AKeyToTakeOutMustExist) {
  EXPECT_THAT(mistakes(kData, {"no.such="}), ElementsAre(StartsWith("--set no.such=: no: ")));
  EXPECT_THAT(mistakes(kData, {"train.stepz="}),
              ElementsAre("--set train.stepz=: no such key; did you mean 'steps'?"));
}

TEST(Override, ADataSetIsTakenOut) {
  const std::string both = "data: {train: {path: corpus.txt}, valid: {path: b}}\n";
  EXPECT_EQ(good(both, {"data.valid="}), good(kData));
  EXPECT_EQ(good(both, {"data=", "data.train.path=corpus.txt"}), good(kData));
  EXPECT_THAT(mistakes(both, {"data.train="}), ElementsAre(HasSubstr("data.train: is missing")));
  EXPECT_THAT(mistakes(both, {"data.vaild="}),
              ElementsAre("--set data.vaild=: there is no such data set to take out"));
  EXPECT_EQ(good(both + "eval: {sets: []}\n", {"eval.sets="}).eval.sets,
            (std::vector<std::string>{"valid"}));
}

}  // namespace
}  // namespace stoker::config::test
