// What only several settings together show to be wrong.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(CrossChecks, DataToTrainOnIsRequired) {
  EXPECT_THAT(mistakes("data: {valid: {path: b}}\n"),
              ElementsAre("my.yaml:1:1: data.train: is missing; name the data to train on, such as "
                          "'train: {kind: text, path: corpus.txt}'"));
}

TEST(CrossChecks, AMeanHasAStandardDeviation) {
  const std::string pictures =
      "data: {train: {kind: cifar, path: a, classes: 10}}\ntask: {kind: classification, ";
  EXPECT_THAT(mistakes(pictures + "mean: [0.4, 0.5, 0.6]}\nmodel: {kind: mlp}\n"),
              ElementsAre(HasSubstr("task.mean: and task.std must have as many numbers")));
  EXPECT_THAT(mistakes(pictures + "mean: [], std: []}\nmodel: {kind: mlp}\n"),
              ElementsAre(HasSubstr("task.mean: ")));
  good(pictures + "mean: [0.4, 0.5, 0.6], std: [0.2, 0.2, 0.3]}\nmodel: {kind: mlp}\n");
}

TEST(CrossChecks, ATaskThatAsksAboutEachStepNeedsAModelThatSaysSo) {
  const std::string data = "data: {train: {kind: npy, path: a}}\n",
                    tagging = data + "task: {kind: tagging}\n";
  EXPECT_EQ(good(tagging + "model: {kind: blstm}\n").model.states, "each");
  EXPECT_EQ(good(data + "task: {kind: ctc}\nmodel: {kind: blstm}\n").model.states, "each");
  EXPECT_EQ(good(data + "task: {kind: classification}\nmodel: {kind: blstm}\n").model.states,
            "last");
  EXPECT_THAT(mistakes(tagging + "model: {kind: blstm, states: mean}\n"),
              ElementsAre(HasSubstr("model.states: is mean, but the task asks about each step")));
  EXPECT_THAT(mistakes(data + "task: {kind: classification}\nmodel: {kind: blstm, states: each}\n"),
              ElementsAre(HasSubstr("model.states: is each, but the task asks one thing")));
  for (const std::string kind : {"mlp", "lenet", "resnet", "vit"})
    EXPECT_THAT(mistakes(tagging + "model: {kind: " + kind + "}\n"),
                ElementsAre(HasSubstr("task.kind: needs a model that says something of each step")))
        << kind;
}

TEST(CrossChecks, SomeClassHasAWeight) {
  const std::string pictures =
      "data: {train: {kind: cifar, path: a, classes: 10}}\nmodel: {kind: mlp}\n"
      "task: {kind: classification, class_weights: ";
  EXPECT_THAT(mistakes(pictures + "[0, 0]}\n"),
              ElementsAre(HasSubstr("task.class_weights: are all 0")));
  EXPECT_THAT(mistakes(pictures + "[1, -1]}\n"), ElementsAre(HasSubstr("task.class_weights")));
  good(pictures + "[0, 2.5]}\n");
}

TEST(CrossChecks, WeightsAreBalancedWhereLabelsCanBeCounted) {
  const std::string pictures =
      "data: {train: {kind: cifar, path: a, classes: 10}}\nmodel: {kind: mlp}\n"
      "task: {kind: classification, class_weights: balanced}\n";
  const Config config = good(pictures);
  EXPECT_TRUE(config.task.balanced_weights);
  EXPECT_THAT(config.task.class_weights, testing::IsEmpty());
  EXPECT_FALSE(good(pictures, {"task.class_weights=[]"}).task.balanced_weights);
  EXPECT_THAT(
      mistakes(pictures, {"task.kind=multi_label"}),
      ElementsAre(HasSubstr("task.class_weights: is balanced, which is of samples with one")));
  EXPECT_THAT(
      mistakes(pictures, {"feed.source=outside"}),
      ElementsAre(HasSubstr("what outside producers fill in (feed.source) cannot be counted")));
  EXPECT_THAT(mistakes(pictures, {"task.class_weights=balance"}),
              ElementsAre(HasSubstr("is 'balance'; it must be a list, such as [1, 2], or the word "
                                    "balanced")));
}

TEST(CrossChecks, ASetThatGrowsHasNoPartOfItAndIsTrainedOn) {
  good("data: {train: {path: a, grow: epoch}}\n");
  good("data: {train: {kind: mixture, of: [b]}, b: {path: b, grow: at_once}}\n");
  for (const std::string other : {"split: [0.0, 0.9]", "skip: 1", "take: 5", "weights_file: w"})
    EXPECT_THAT(mistakes("data: {train: {path: a, grow: epoch, " + other + "}}\n"),
                ElementsAre(HasSubstr("data.train.grow: goes without")))
        << other;
  EXPECT_THAT(mistakes("data: {train: {path: a}, valid: {path: b, grow: epoch}}\n"),
              ElementsAre(HasSubstr("data.valid.grow: is for sets that are trained on")));
}

TEST(CrossChecks, EachKindOfDataNeedsItsOwn) {
  const auto lacks = [](const std::string& set, const std::string& key) {
    const auto lines = mistakes("data: {train: {" + set + "}}\n" +
                                "task: {kind: classification}\nmodel: {kind: mlp}\n");
    EXPECT_THAT(lines, ElementsAre(HasSubstr("data.train." + key + ": "))) << set;
  };
  lacks("kind: images, size: [8, 8]", "path");
  lacks("kind: images, path: a", "size");
  lacks("kind: images, path: a, size: [8]", "size");
  lacks("kind: images, path: a, size: [8, 8], channels: 2", "channels");
  lacks("kind: idx, path: a", "labels");
  lacks("kind: cifar, path: a", "classes");
  lacks("kind: cifar, path: a, classes: 20", "classes");
  for (const std::string kind : {"tfrecord", "tar"}) {
    const std::string set = "kind: " + kind + ", path: a";
    lacks(set, "input");
    lacks(set + ", input: x, label: y", "size");
    lacks(set + ", input: x, size: [8, 8], shape: [3], label: y", "size");
    lacks(set + ", input: x, size: [8], label: y", "size");
    lacks(set + ", input: x, size: [8, 8]", "label");
    lacks(set + ", input: x, shape: [8], label: y, target: z", "target");
  }
  lacks("kind: synthetic, features: [5]", "samples");
  lacks("kind: synthetic, samples: 5", "features");
}

TEST(CrossChecks, TransformsFitTogether) {
  const auto told = [](const std::string& settings) {
    return mistakes("data: {train: {kind: images, path: a, size: [8, 8], " + settings + "}}\n" +
                    "task: {kind: classification}\nmodel: {kind: lenet}\n");
  };
  for (const char* const good :
       {"fit: random_crop, crop_area: [0.5, 0.5], crop_ratio: [1, 1]", "crop_part: 0.875",
        "fit: center_crop, crop_part: 1", "pad: 4, flip: 1, jitter: [2, 1, 0.5, 0.5]"})
    EXPECT_THAT(told(good), IsEmpty()) << good;
  for (const auto& [bad, what] : std::vector<std::pair<std::string, std::string>>{
           {"fit: crop", "fit"},
           {"crop_part: 0.9", "crop_part: is only used with fit: center_crop"},
           {"fit: center_crop, crop_part: 0", "crop_part"},
           {"fit: center_crop, crop_part: 1.1", "crop_part"},
           {"fit: center_crop, crop_area: [0.1, 1]", "only used with fit: random_crop"},
           {"crop_ratio: [1, 1]", "only used with fit: random_crop"},
           {"fit: random_crop, crop_area: [1, 0.5]", "crop_area: must be [from, to]"},
           {"fit: random_crop, crop_area: [0, 1]", "crop_area"},
           {"fit: random_crop, crop_area: [0.5]", "crop_area"},
           {"fit: random_crop, crop_ratio: [2, 1]", "crop_ratio: must be [from, to]"},
           {"pad: -1", "pad"},
           {"flip: 1.5", "flip"},
           {"jitter: [0.4]", "jitter: must be [brightness"},
           {"jitter: [0.4, 0.4, 0.4, 0.6]", "hue of at most 0.5"},
           {"jitter: [-1, 0, 0, 0]", "jitter"}})
    EXPECT_THAT(told(bad), ElementsAre(testing::AllOf(HasSubstr("data.train."), HasSubstr(what))))
        << bad;
}

TEST(CrossChecks, ATextOfRecordsIsASequenceOfBytes) {
  const std::string text = "data: {train: {kind: tar, path: a, text: txt}}\n";
  EXPECT_EQ(good(text).data.at("train").context, ModelConfig().context);
  EXPECT_THAT(mistakes(text + "model: {vocab: 255}\n"), ElementsAre(HasSubstr("model.vocab")));
  EXPECT_THAT(mistakes(text + "model: {kind: mlp}\ntask: {kind: classification}\n"),
              ElementsAre(HasSubstr("model.kind")));
  EXPECT_THAT(mistakes("data: {train: {kind: tar, path: a, text: txt, label: y}}\n"),
              ElementsAre(HasSubstr("data.train.text: goes without")));
  const std::string pictures =
      "data: {train: {kind: tar, path: a, input: x, size: [8, 8], label: y}}\n";
  EXPECT_THAT(mistakes(pictures), ElementsAre(HasSubstr("or have a text")));
}

TEST(CrossChecks, OneNameOfAnInputNeedsNoBrackets) {
  const std::string rest =
      ", shape: [3], label: y}}\nmodel: {kind: mlp}\ntask: {kind: classification}\n";
  EXPECT_EQ(good("data: {train: {kind: tar, path: a, input: x;y" + rest),
            good("data: {train: {kind: tar, path: a, input: [x;y]" + rest));
}

TEST(CrossChecks, APartGoesFromLessToMore) {
  for (const char* const split :
       {"[0.5, 0.5]", "[0.9, 0.1]", "[]", "[0.5]", "[0, 0.5, 1]", "[-0.1, 1]", "[0, 1.1]"}) {
    EXPECT_THAT(mistakes("data: {train: {path: a, split: " + std::string(split) + "}}\n"),
                ElementsAre(StartsWith("my.yaml:1:")))
        << split;
  }
}

TEST(CrossChecks, ASetToEvaluateMustBeThere) {
  const std::string data = "data: {train: {path: a}, valid: {path: b}}\n";
  EXPECT_THAT(mistakes(data + "eval: {sets: [valid, vaild]}\n"),
              ElementsAre("my.yaml:2:14: eval.sets: names 'vaild', but there is no data.vaild; did "
                          "you mean 'valid'?"));
  EXPECT_THAT(mistakes(data + "eval: {sets: [valid, valid]}\n"),
              ElementsAre(HasSubstr("names 'valid' twice")));
  EXPECT_THAT(mistakes(kData + "eval: {sets: [valid]}\n"), ElementsAre(HasSubstr("eval.sets")));
  EXPECT_THAT(mistakes(data + "eval: {sets: [train]}\n"), IsEmpty());
}

TEST(CrossChecks, HeadsShareTheWidth) {
  EXPECT_THAT(mistakes(kData + "model: {width: 100, heads: 6}\n"),
              ElementsAre("my.yaml:2:16: model.width: is 100, not a multiple of model.heads (6)"));
  // Of two keys, the one that is given is named.
  EXPECT_THAT(mistakes(kData + "model: {heads: 5}\n"), ElementsAre(StartsWith("my.yaml:2:")));
}

TEST(CrossChecks, SamplesFitIntoTheModelsContext) {
  EXPECT_THAT(mistakes("data: {train: {path: a, context: 129}}\n"),
              ElementsAre("my.yaml:1:34: data.train.context: is 129 tokens, more than "
                          "model.context (128)"));
  EXPECT_THAT(mistakes("data: {train: {path: a}, valid: {path: b, context: 200}}\n"),
              ElementsAre(HasSubstr("data.valid.context")));
  EXPECT_THAT(mistakes("data: {train: {path: a, context: 129}}\nmodel: {context: 129}\n"),
              IsEmpty());
}

TEST(CrossChecks, BytesFitIntoTheVocabulary) {
  EXPECT_THAT(mistakes(kData + "model: {vocab: 255}\n"),
              ElementsAre("my.yaml:2:16: model.vocab: is 255, but data.train is of bytes: at least "
                          "256"));
  EXPECT_THAT(mistakes("data: {train: {kind: tokens, path: a}}\nmodel: {vocab: 50}\n"), IsEmpty());
}

TEST(CrossChecks, AResnetHasADepthThatExists) {
  for (const char* const depth :
       {"8", "14", "18", "20", "32", "34", "44", "50", "56", "101", "152"})
    EXPECT_THAT(mistakes(kPictures, {"model.kind=resnet", "model.layers=" + std::string(depth)}),
                IsEmpty());
  EXPECT_THAT(mistakes(kPictures + "model: {kind: resnet, layers: 19}\n"),
              ElementsAre(StartsWith("my.yaml:3:31: model.layers: is 19; a resnet has")));
}

TEST(CrossChecks, AVggHasADepthThatExists) {
  for (const char* const depth : {"11", "13", "16", "19"})
    EXPECT_THAT(mistakes(kPictures, {"model.kind=vgg", "model.layers=" + std::string(depth)}),
                IsEmpty());
  EXPECT_THAT(mistakes(kPictures + "model: {kind: vgg, layers: 18}\n"),
              ElementsAre("my.yaml:3:28: model.layers: is 18; a vgg has 11, 13, 16 or 19 layers"));
}

TEST(CrossChecks, ModelTaskAndDataFitEachOther) {
  EXPECT_THAT(mistakes(kData + "task: {kind: classification}\n"),
              ElementsAre(HasSubstr("task.kind: does not fit model.kind gpt")));
  EXPECT_THAT(mistakes("data: {train: {kind: cifar, path: a, classes: 10}}\n"),
              ElementsAre(HasSubstr("data.train must be of kind text or tokens")));
  EXPECT_THAT(mistakes(kPictures + "model: {kind: lenet}\n"), IsEmpty());
  EXPECT_THAT(mistakes("data: {train: {kind: cifar, path: a, classes: 10}}\n"
                       "model: {kind: lenet}\n"),
              ElementsAre(HasSubstr("is language_model, which needs model.kind gpt")));
  EXPECT_THAT(mistakes(kData + "model: {kind: mlp}\ntask: {kind: regression}\n"),
              ElementsAre(HasSubstr("model.kind: does not read sequences of tokens")));
}

TEST(CrossChecks, ADeviceHasANameThatExists) {
  for (const char* const word : {"auto", "cpu", "cuda", "cuda:0", "cuda:15"})
    EXPECT_THAT(mistakes(kData, {"train.device=" + std::string(word)}), IsEmpty()) << word;
  for (const char* const word :
       {"gpu", "\"cuda:\"", "cuda:x", "cuda:1x", "cuda:-1", "cuda:999", "CPU"})
    EXPECT_THAT(mistakes(kData, {"train.device=" + std::string(word)}),
                ElementsAre(HasSubstr("it must be auto, cpu, cuda or cuda:N")))
        << word;
}

TEST(CrossChecks, ThreadsSufficeForTheProcesses) {
  EXPECT_THAT(mistakes(kData + "feed: {readers: 2, processes: 3}\n"),
              ElementsAre(StartsWith("my.yaml:2:31: feed.processes: is 3, more than the 2")));
  EXPECT_THAT(mistakes(kData + "feed: {readers: 2, processes: 3, isolation: thread}\n"), IsEmpty());
}

// ---- Mixtures, and how samples are drawn

const std::string kMixed =
    "data: {train: {kind: mixture, of: [code, prose]}, code: {path: a}, prose: {path: b}}\n";

TEST(Mixtures, AreOfSetsThatAreThereEachOnce) {
  EXPECT_THAT(mistakes(kMixed), IsEmpty());
  EXPECT_THAT(mistakes("data: {train: {kind: mixture}}\n"),
              ElementsAre(HasSubstr("data.train.of: is missing; name the sets of the mixture")));
  EXPECT_THAT(mistakes(kMixed, {"data.train.of=[code, pros]"}),
              ElementsAre("--set data.train.of=[code, pros]: names 'pros', but there is no "
                          "data.pros; did you mean 'prose'?"));
  EXPECT_THAT(mistakes(kMixed, {"data.train.of=[code, code]"}),
              ElementsAre(HasSubstr("names 'code' twice")));
  EXPECT_THAT(mistakes(kMixed, {"data.train.of=[train]"}),
              ElementsAre(HasSubstr("names 'train', which is a mixture itself")));
}

TEST(Mixtures, HaveAWeightForEachOfTheirSetsOrNone) {
  EXPECT_THAT(mistakes(kMixed, {"data.train.weights=[0.7, 0.3]"}), IsEmpty());
  EXPECT_THAT(mistakes(kMixed, {"data.train.weights=[1]"}),
              ElementsAre(HasSubstr("data.train.weights=[1]: has 1 numbers for the 2 sets")));
  EXPECT_THAT(mistakes(kMixed, {"data.train.weights=[1, 0]"}),
              ElementsAre(HasSubstr("a number above 0")));
}

TEST(Mixtures, ReadNeitherPathNorPart) {
  EXPECT_THAT(
      mistakes(kMixed, {"data.train.split=[0, 0.5]"}),
      ElementsAre("--set data.train.split=[0, 0.5]: is not read by kind mixture; remove it"));
  EXPECT_THAT(mistakes(kMixed, {"data.train.path=a"}), ElementsAre(HasSubstr("only by text")));
}

TEST(Mixtures, FitModelAndTaskByTheirSets) {
  EXPECT_THAT(mistakes(kMixed + "task: {kind: classification}\nmodel: {kind: mlp}\n"),
              ElementsAre(HasSubstr("which data.code has; write gpt")));
  EXPECT_THAT(
      mistakes("data: {train: {kind: mixture, of: [a]}, a: {kind: cifar, path: a, classes: 10}}\n"
               "task: {kind: classification}\nmodel: {kind: lenet}\n"),
      IsEmpty());
}

TEST(Draws, OneSettingSaysHowOftenASampleComes) {
  const std::string drawn = "data: {train: {path: a, weights_file: w.txt}}\n";
  EXPECT_THAT(mistakes(drawn), IsEmpty());
  EXPECT_THAT(mistakes(drawn, {"data.train.repeat=2"}),
              ElementsAre(HasSubstr("drawn by data.train.weights_file; leave one of them out")));
  const Flags weighted{"data.train.weights=[1, 2]"};
  EXPECT_THAT(mistakes(kMixed, {weighted[0], "data.code.repeat=2"}),
              ElementsAre(HasSubstr("data.train.weights says how often a set is used")));
  EXPECT_THAT(mistakes(kMixed, {"data.code.repeat=2"}), IsEmpty());
  EXPECT_THAT(mistakes(kMixed, {"data.code.weights_file=w"}),
              ElementsAre(HasSubstr("needs data.train.weights")));
  EXPECT_THAT(mistakes(kMixed, {weighted[0], "data.code.weights_file=w"}), IsEmpty());
}

TEST(Draws, HaveNoLastBatch) {
  for (const std::string last : {"drop", "pad"}) {
    const std::string flag = "feed.last_batch=" + last;
    EXPECT_THAT(mistakes(kMixed, {flag}), IsEmpty());
    EXPECT_THAT(mistakes(kMixed, {flag, "data.train.weights=[1, 2]"}),
                ElementsAre(HasSubstr("must be span: with data.train.weights")));
    EXPECT_THAT(mistakes(kData, {flag, "data.train.weights_file=w"}),
                ElementsAre(HasSubstr("must be span: samples drawn by")));
  }
}

TEST(Shuffles, ReadTheirOwnKeysOnly) {
  EXPECT_THAT(mistakes(kData + "feed: {shuffle: window, window: 5}\n"), IsEmpty());
  EXPECT_THAT(mistakes(kData + "feed: {window: 5}\n"),
              ElementsAre("my.yaml:2:8: feed.window: is not read by shuffle full (only by window); "
                          "remove it"));
  EXPECT_THAT(mistakes(kData + "feed: {shards_open: 5, shuffle: window}\n"),
              ElementsAre(HasSubstr("feed.shards_open: is not read by shuffle window")));
  EXPECT_THAT(mistakes(kData + "feed: {shuffle: true, window: 5}\n"),
              ElementsAre("my.yaml:2:17: feed.shuffle: is 'true'; it must be full, off, window or "
                          "shards"));
}

TEST(CrossChecks, NesterovNeedsMomentum) {
  EXPECT_THAT(mistakes(kData + "optimizer: {kind: momentum, momentum: 0, nesterov: true}\n"),
              ElementsAre(HasSubstr("optimizer.nesterov: needs optimizer.momentum above 0")));
}

TEST(CrossChecks, BetasAreTwo) {
  for (const char* const betas : {"[]", "[0.9]", "[0.9, 0.95, 0.99]", "[0.9, 1]"})
    EXPECT_THAT(mistakes(kData, {"optimizer.betas=" + std::string(betas)}),
                ElementsAre(HasSubstr("must be two numbers")))
        << betas;
}

TEST(CrossChecks, WhatIsNotServedYetIsSaid) {
  EXPECT_THAT(mistakes(kData + "control: {http: \"127.0.0.1:9000\"}\n"),
              ElementsAre(HasSubstr("control.http: is not served by this version")));
}

TEST(CrossChecks, EmptyNamesAreRefused) {
  EXPECT_THAT(mistakes(kData + "run: {dir: \"\"}\n"), ElementsAre(HasSubstr("run.dir: must name")));
  EXPECT_THAT(mistakes(kData + "control: {socket: \"\"}\n"),
              ElementsAre(HasSubstr("control.socket: must be")));
}

}  // namespace
}  // namespace stoker::config::test
