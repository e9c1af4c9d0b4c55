// to_yaml(), and differences().
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/random_config.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(WrittenConfig, ReadAgainIsTheSameWhateverItSays) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Config config = random_config(random);
    const std::string text = to_yaml(config);
    const auto again = parsed(text);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\nin:\n" << text;
    ASSERT_EQ(*again, config) << testing::PrintToString(differences(config, *again)) << "\nin:\n"
                              << text;
    ASSERT_EQ(to_yaml(*again), text);
    ASSERT_EQ(digest(*again), digest(config));
  }
}

TEST(WrittenConfig, SaysEverythingThatIsReadAndNothingElse) {
  const std::string text = to_yaml(good(kPictures + "model: {kind: resnet}\n"));
  EXPECT_THAT(text, HasSubstr("\nmodel:\n  kind: resnet\n  layers: 18\n  outputs: 0\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("width")));
  EXPECT_THAT(text, testing::StartsWith("run:\n  dir: runs/demo\n  seed: 1\n"));
  EXPECT_THAT(text, testing::EndsWith("\nlog:\n  level: info\n"));
}

TEST(WrittenConfig, TrainComesFirstOfTheData) {
  const std::string text = to_yaml(good("data: {a: {path: x}, train: {path: z}}\n"));
  EXPECT_THAT(text, HasSubstr("\ndata:\n  train:\n    kind: text\n    path: z\n"));
  EXPECT_LT(text.find("  train:"), text.find("  a:"));
}

TEST(WrittenConfig, NumbersAreWrittenForEveryYamlReader) {
  // YAML 1.1 takes 1e-08 for text: a number with an exponent needs a point.
  const std::string text = to_yaml(good(kData + "optimizer: {eps: 1e-8, lr: 1e-7}\n"));
  EXPECT_THAT(text, HasSubstr("  eps: 1.0e-08\n"));
  EXPECT_THAT(text, HasSubstr("  lr: 1.0e-07\n"));
}

TEST(WrittenConfig, TextIsWrittenForEveryYamlReader) {
  // off is a bool for YAML 1.1, 007 a number for all.
  const std::string text = to_yaml(good(kData + "control: {socket: off}\nrun: {dir: 007}\n"));
  EXPECT_THAT(text, HasSubstr("  socket: \"off\"\n"));
  EXPECT_THAT(text, HasSubstr("  dir: \"007\"\n"));
}

// ---- Differences

TEST(Differences, AreNamedWithBothValues) {
  const Config before = good(kData + "train: {steps: 5}\n");
  const Config after = good(kData + "train: {steps: 6}\nlog: {level: debug}\n");
  EXPECT_THAT(differences(before, after),
              ElementsAre("train.steps: 5 -> 6", "log.level: info -> debug"));
  EXPECT_THAT(differences(before, before), IsEmpty());
}

TEST(Differences, OfListsAndTextsShowThemAsYaml) {
  const Config before = good(kData);
  const Config after = good(
      "data: {train: {path: a b, split: [0, 0.5]}}\n"
      "model: {freeze: [x]}\n");
  EXPECT_THAT(differences(before, after),
              ElementsAre("data.train.path: corpus.txt -> \"a b\"",
                          "data.train.split: [0, 1] -> [0, 0.5]", "model.freeze: [] -> [x]"));
}

TEST(Differences, KeysThatOnlyOneReadsAreShownToo) {
  const Config before = good(kData);
  const Config after = good(
      "data: {train: {path: corpus.txt}, more: {path: x}}\n"
      "schedule: {kind: constant}\n");
  const auto lines = differences(before, after);
  EXPECT_THAT(lines, testing::Contains("data.more.path: (not set) -> x"));
  EXPECT_THAT(lines, testing::Contains("schedule.kind: cosine -> constant"));
  EXPECT_THAT(lines, testing::Contains("schedule.min_lr: 3.0e-05 -> (not set)"));
}

TEST(Differences, AreEmptyOnlyForEqualConfigs) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) {
    const Config a = random_config(random);
    const Config b = random_config(random);
    EXPECT_EQ(differences(a, b).empty(), a == b);
    EXPECT_THAT(differences(a, a), IsEmpty());
  }
}

}  // namespace
}  // namespace stoker::config::test
