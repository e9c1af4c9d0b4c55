// What is said about a text that is wrong: all of it, where it stands, what to do.
#include "shared/config/mistakes.h"

#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Mistakes, AnUnknownKeyIsNamedWithItsPlaceAndTheLikelyOne) {
  EXPECT_THAT(
      mistakes(kData + "optimizer:\n  kind: adamw\n  learing_rate: 1\n  weigth_decay: 0.1\n"),
      ElementsAre("my.yaml:4:3: optimizer.learing_rate: no such key",
                  "my.yaml:5:3: optimizer.weigth_decay: no such key; did you mean "
                  "'weight_decay'?"));
}

TEST(Mistakes, AnUnknownSectionIsNamedWithTheLikelyOne) {
  EXPECT_THAT(mistakes(kData + "optimiser: {lr: 0.1}\n"),
              ElementsAre("my.yaml:2:1: optimiser: no such section; did you mean 'optimizer'?"));
  EXPECT_THAT(mistakes(kData + "lr: 0.1\n"),
              ElementsAre("my.yaml:2:1: lr: no such section; did you mean 'optimizer.lr'?"));
  EXPECT_THAT(mistakes(kData + "xyzzy: 1\n"), ElementsAre("my.yaml:2:1: xyzzy: no such section"));
}

TEST(Mistakes, AnUnknownKeyOfADataSetIsNamedInFull) {
  EXPECT_THAT(
      mistakes("data:\n  train: {kind: text, path: a}\n  valid: {kind: text, paht: b}\n"),
      testing::Contains("my.yaml:3:23: data.valid.paht: no such key; did you mean 'path'?"));
}

TEST(Mistakes, AllAreToldAtOnceInTheOrderOfTheFile) {
  EXPECT_THAT(mistakes("train: {steps: -1, batch: x}\n"
                       "log: {level: loud}\n"
                       "data: {train: {kind: txet, path: a}}\n"
                       "modle: {}\n"
                       "feed: {readers: 0}\n"),
              ElementsAre(StartsWith("my.yaml:1:16: train.steps: is '-1'"),
                          StartsWith("my.yaml:1:27: train.batch: is 'x'"),
                          StartsWith("my.yaml:2:14: log.level: is 'loud'"),
                          StartsWith("my.yaml:3:22: data.train.kind: is 'txet'"),
                          StartsWith("my.yaml:4:1: modle: no such section"),
                          StartsWith("my.yaml:5:17: feed.readers: is '0'")));
}

TEST(Mistakes, AWordThatIsNoKindIsNamedWithTheLikelyOne) {
  EXPECT_THAT(
      mistakes("data: {train: {kind: txet, path: a}}\n"),
      ElementsAre("my.yaml:1:22: data.train.kind: is 'txet'; it must be text, tokens, "
                  "images, idx, cifar, npy, tfrecord, tar, csv, jsonl, synthetic or mixture (did "
                  "you mean 'text'?)"));
}

// ---- Types

TEST(Mistakes, AWrongTypeIsToldWithTheRightOne) {
  const auto wrong = [](const std::string& text) {
    const auto lines = mistakes(kData + text);
    return lines.size() == 1 ? lines[0] : testing::PrintToString(lines);
  };
  EXPECT_EQ(wrong("train: {batch: many}"),
            "my.yaml:2:16: train.batch: is 'many'; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(wrong("train: {batch: 1.5}"),
            "my.yaml:2:16: train.batch: is '1.5'; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(wrong("train: {batch: \"16\"}"),
            "my.yaml:2:16: train.batch: is '16' in quotes; it must be a whole number from 1 to "
            "1000000");
  EXPECT_EQ(wrong("train: {batch: [16]}"),
            "my.yaml:2:16: train.batch: is a list; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(wrong("train: {batch: {a: 1}}"),
            "my.yaml:2:16: train.batch: is a section; it must be a whole number from 1 to "
            "1000000");
  EXPECT_EQ(wrong("train:\n  batch:\n  steps: 5"),
            "my.yaml:3:3: train.batch: has no value; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(wrong("run: {deterministic: yes}"),
            "my.yaml:2:22: run.deterministic: is 'yes'; it must be true or false");
  EXPECT_EQ(wrong("run: {seed: -1}"),
            "my.yaml:2:13: run.seed: is '-1'; it must be a whole number from 0 to "
            "18446744073709551615");
  EXPECT_EQ(wrong("run: {seed: 18446744073709551616}"),
            "my.yaml:2:13: run.seed: is '18446744073709551616'; it must be a whole number from 0 "
            "to 18446744073709551615");
  EXPECT_EQ(wrong("run: {dir: [a]}"), "my.yaml:2:12: run.dir: is a list; it must be text");
  EXPECT_EQ(wrong("model: {freeze: conv1}"),
            "my.yaml:2:17: model.freeze: is 'conv1'; it must be a list, such as [a, b]");
  EXPECT_EQ(wrong("optimizer: {betas: 0.9}"),
            "my.yaml:2:20: optimizer.betas: is '0.9'; it must be a list, such as [1, 2]");
  EXPECT_EQ(wrong("train: 5"), "my.yaml:2:8: train: is a section; write its keys below it");
  EXPECT_EQ(wrong("train: [5]"), "my.yaml:2:8: train: is a section; write its keys below it");
}

TEST(Mistakes, ATextThatIsNoSectionsIsRefused) {
  EXPECT_THAT(mistakes("hello"), testing::Not(IsEmpty()));
  EXPECT_THAT(mistakes("- a\n- b\n"), testing::Not(IsEmpty()));
  EXPECT_THAT(mistakes("5"), testing::Not(IsEmpty()));
}

TEST(Mistakes, AnEmptyTextLacksTheData) {
  for (const char* const text : {"", "\n\n", "# nothing\n", "---\n", "~\n", "{}\n", "data:\n"})
    EXPECT_THAT(mistakes(text), ElementsAre(HasSubstr("data.train: is missing"))) << text;
}

TEST(Mistakes, NumbersThatAreNoneAreRefused) {
  for (const char* const text : {".nan", ".inf", "-.inf", "nan", "inf", "1e999", "0x10", "1_000",
                                 "1,5", "1e", "--1", "+-1", "+", "''", "1 000"}) {
    EXPECT_THAT(mistakes(kData + "optimizer: {lr: " + text + "}\n"), testing::Not(IsEmpty()))
        << text;
  }
}

// ---- Ranges: each bound of each number, from both sides

struct Bound {
  std::string key;
  std::string inside;
  std::string outside;
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.key << "=" << bound.outside; }

class Ranges : public testing::TestWithParam<Bound> {};

std::string text_for(const std::string& key) {
  if (key == "model.hidden" || key == "model.inputs" || key == "model.outputs")
    return kPictures + "model: {kind: mlp}\n";
  if (key == "data.train.size" || key == "data.train.channels")
    return "data: {train: {kind: images, path: a, size: [8, 8]}}\ntask: {kind: classification}\n"
           "model: {kind: resnet}\n";
  if (key.starts_with("data.train."))
    return "data: {train: {kind: synthetic, samples: 5, features: [3]}}\n"
           "task: {kind: regression}\nmodel: {kind: mlp}\n";
  std::string text = kData;
  if (key == "optimizer.momentum") text += "optimizer: {kind: momentum}\n";
  if (key == "schedule.factor" || key == "schedule.every_steps") text += "schedule: {kind: step}\n";
  return text;
}

TEST_P(Ranges, TheBoundIsAllowedAndWhatIsPastItIsNot) {
  const auto& [key, inside, outside] = GetParam();
  EXPECT_THAT(mistakes(text_for(key), {key + "=" + inside}), IsEmpty());
  EXPECT_THAT(mistakes(text_for(key), {key + "=" + outside}),
              ElementsAre(StartsWith("--set " + key + "=" + outside + ": ")));
}

INSTANTIATE_TEST_SUITE_P(
    Low, Ranges,
    testing::Values(
        Bound{"data.train.noise", "0", "-0.1"}, Bound{"data.train.targets", "1", "0"},
        Bound{"data.train.samples", "1", "0"}, Bound{"data.train.features", "[1]", "[0]"},
        Bound{"data.train.size", "[1, 1]", "[0, 1]"}, Bound{"data.train.channels", "1", "2"},
        Bound{"feed.readers", "1", "0"}, Bound{"feed.processes", "1", "0"},
        Bound{"feed.slots", "2", "1"}, Bound{"feed.read_ahead", "0", "-1"},
        Bound{"feed.read_ahead_mib", "1", "0"}, Bound{"feed.bad_sample_limit", "0", "-0.001"},
        Bound{"model.layers", "1", "0"}, Bound{"model.width", "6", "0"},
        Bound{"model.heads", "1", "0"}, Bound{"model.context", "1", "0"},
        Bound{"model.vocab", "256", "255"}, Bound{"model.dropout", "0", "-0.1"},
        Bound{"model.hidden", "[]", "[0]"}, Bound{"model.inputs", "0", "-1"},
        Bound{"model.outputs", "0", "-1"}, Bound{"optimizer.lr", "1.0e-30", "0"},
        Bound{"optimizer.betas", "[0, 0]", "[-0.1, 0]"}, Bound{"optimizer.eps", "1.0e-30", "0"},
        Bound{"optimizer.momentum", "0", "-0.1"}, Bound{"optimizer.weight_decay", "0", "-0.1"},
        Bound{"optimizer.clip_norm", "0", "-1"}, Bound{"schedule.warmup_steps", "0", "-1"},
        Bound{"schedule.min_lr", "0", "-1"}, Bound{"schedule.every_steps", "1", "0"},
        Bound{"schedule.factor", "1.0e-30", "0"}, Bound{"train.steps", "1", "0"},
        Bound{"train.batch", "1", "0"}, Bound{"train.accumulate", "1", "0"},
        Bound{"train.threads", "0", "-1"}, Bound{"checkpoint.every_steps", "0", "-1"},
        Bound{"checkpoint.every_seconds", "0", "-1"}, Bound{"checkpoint.keep_last", "2", "1"},
        Bound{"checkpoint.keep_every_steps", "0", "-1"}, Bound{"checkpoint.keep_best", "0", "-1"},
        Bound{"eval.batch", "1", "0"}, Bound{"eval.threads", "0", "-1"},
        Bound{"eval.max_samples", "0", "-1"}, Bound{"eval.timeout_seconds", "1", "0.9"},
        Bound{"eval.tries", "1", "0"}, Bound{"metrics.every_steps", "1", "0"}));

INSTANTIATE_TEST_SUITE_P(
    High, Ranges,
    testing::Values(
        Bound{"data.train.size", "[16384, 16384]", "[16384, 16385]"},
        Bound{"data.train.channels", "3", "4"}, Bound{"feed.readers", "1024", "1025"},
        Bound{"feed.processes", "2", "3"}, Bound{"feed.slots", "1024", "1025"},
        Bound{"feed.read_ahead", "1024", "1025"}, Bound{"feed.bad_sample_limit", "1", "1.001"},
        Bound{"model.layers", "1000", "1001"}, Bound{"model.dropout", "0.99", "1"},
        Bound{"optimizer.betas", "[0.99, 0.999]", "[1, 0.9]"},
        Bound{"optimizer.momentum", "1", "1.1"}, Bound{"train.batch", "1000000", "1000001"},
        Bound{"train.steps", "1000000000000000", "1000000000000001"},
        Bound{"train.threads", "4096", "4097"}, Bound{"checkpoint.keep_best", "1000000", "1000001"},
        Bound{"eval.batch", "1000000", "1000001"},
        Bound{"eval.max_samples", "1000000000", "1000000001"}, Bound{"eval.tries", "100", "101"},
        Bound{"train.batch", "1", "9223372036854775808"},
        Bound{"train.steps", "1", "99999999999999999999999"}));

// ---- Keys that belong to another kind

struct Foreign {
  std::string text;
  std::string key;
  std::string kind;
};
void PrintTo(const Foreign& foreign, std::ostream* out) { *out << foreign.key; }

class ForeignKeys : public testing::TestWithParam<Foreign> {};

TEST_P(ForeignKeys, AreRefusedWithTheKindsThatReadThem) {
  const auto& [text, key, kind] = GetParam();
  EXPECT_THAT(mistakes(text), ElementsAre(AllOf(HasSubstr(key + ": is not read by kind " + kind),
                                                HasSubstr("only by"), StartsWith("my.yaml:"))));
}

INSTANTIATE_TEST_SUITE_P(
    Each, ForeignKeys,
    testing::Values(
        Foreign{"data: {train: {kind: text, path: a, dtype: uint16}}", "data.train.dtype", "text"},
        Foreign{"data: {train: {kind: text, path: a, labels: b}}", "data.train.labels", "text"},
        Foreign{"data: {train: {kind: tokens, path: a, glob: b}}", "data.train.glob", "tokens"},
        Foreign{"data: {train: {kind: text, path: a, noise: 0.1}}", "data.train.noise", "text"},
        Foreign{kPictures + "model: {kind: resnet, width: 64}", "model.width", "resnet"},
        Foreign{kPictures + "model: {kind: lenet, layers: 5}", "model.layers", "lenet"},
        Foreign{kPictures + "model: {kind: mlp, vocab: 5}", "model.vocab", "mlp"},
        Foreign{kData + "model: {hidden: [5]}", "model.hidden", "gpt"},
        Foreign{kData + "optimizer: {momentum: 0.5}", "optimizer.momentum", "adamw"},
        Foreign{kData + "optimizer: {kind: sgd, betas: [0.9, 0.99]}", "optimizer.betas", "sgd"},
        Foreign{kData + "schedule: {kind: constant, min_lr: 0}", "schedule.min_lr", "constant"},
        Foreign{kData + "schedule: {factor: 0.5}", "schedule.factor", "cosine"}));

TEST(Mistakes, AKindThatIsWrongIsNoReasonToRefuseItsKeys) {
  EXPECT_THAT(mistakes(kPictures + "model: {kind: resnett, layers: 20, width: 5}\n"),
              ElementsAre(HasSubstr("model.kind: is 'resnett'")));
}

// ---- Places and limits

TEST(Mistakes, PlacesCountLinesFromOneAlsoOnWindows) {
  EXPECT_THAT(mistakes("data: {train: {path: a}}\r\ntrain:\r\n  stepz: 5\r\n"),
              ElementsAre(StartsWith("my.yaml:3:3: train.stepz")));
}

TEST(Mistakes, TextOfTheUserIsShownOnOneShortLine) {
  const auto lines = mistakes(kData + "log:\n  level: \"a\\nb" + std::string(500, 'x') + "\"\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("a\\nb"));
  EXPECT_LT(lines[0].size(), 250u);
}

TEST(Mistakes, OfVeryManyTheFirstAreShownAndTheRestCounted) {
  std::string text = kData + "train:\n";
  for (int i = 0; i < 500; ++i) text += "  key" + std::to_string(i) + ": 1\n";
  const auto lines = mistakes(text);
  EXPECT_EQ(lines.size(), 51u);
  EXPECT_THAT(lines.back(), HasSubstr("450 more"));
}

TEST(Mistakes, AListMayNotBeEndless) {
  std::string text = kData + "model: {freeze: [a";
  for (int i = 0; i < 2000; ++i) text += ", a";
  EXPECT_THAT(mistakes(text + "]}\n"), ElementsAre(HasSubstr("more than 1024 items")));
}

TEST(Mistakes, ThereMayNotBeEndlesslyManyDataSets) {
  std::string text = "data:\n  train: {path: a}\n";
  for (int i = 0; i < 64; ++i) text += "  set" + std::to_string(i) + ": {path: a}\n";
  EXPECT_THAT(mistakes(text), ElementsAre(HasSubstr("more than 64 data sets")));
}

TEST(Mistakes, ADataSetsNameMayNotBeAPath) {
  for (const char* const name : {"../x", "a/b", "a.b", "'a b'", "-a", "''", "\"a\\nb\"", "ü"})
    EXPECT_THAT(mistakes("data: {train: {path: a}, " + std::string(name) + ": {path: b}}\n"),
                ElementsAre(HasSubstr("named with letters, digits")))
        << name;
}

TEST(Mistakes, TouchesCoversWhatLiesBelow) {
  Mistakes found("f", {});
  found.add({}, "data.train.kind", "x");
  found.add({}, "model", "x");
  EXPECT_TRUE(found.touches("data.train.kind"));
  EXPECT_FALSE(found.touches("data.train"));
  EXPECT_FALSE(found.touches("data.train.kin"));
  EXPECT_TRUE(found.touches("model"));
  EXPECT_TRUE(found.touches("model.width"));
  EXPECT_FALSE(found.touches("models"));
}

}  // namespace
}  // namespace stoker::config::test
