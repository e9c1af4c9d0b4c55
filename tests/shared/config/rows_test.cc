// Lists of small sections: optimizer.groups, model.init_map.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Rows, AreReadInTheirOrderWithDefaults) {
  const Config config = good(kData +
                             "optimizer:\n"
                             "  groups:\n"
                             "    - match: \"tok.*\"\n"
                             "      lr_scale: 0.1\n"
                             "    - {match: \"*.bias\", weight_decay: 0}\n"
                             "model:\n"
                             "  init_from: w.pt\n"
                             "  init_map: [{from: \"module.*\", to: \"*\"}]\n"
                             "  init_ignore: [\"head.*\"]\n"
                             "  init_strict: false\n");
  EXPECT_EQ(config.optimizer.groups,
            (std::vector<ParameterGroup>{{.match = "tok.*", .lr_scale = 0.1},
                                         {.match = "*.bias", .lr_scale = 1, .weight_decay = 0.0}}));
  EXPECT_EQ(config.model.init_map, (std::vector<NameRule>{{.from = "module.*", .to = "*"}}));
  EXPECT_EQ(config.model.init_ignore, (std::vector<std::string>{"head.*"}));
  EXPECT_FALSE(config.model.init_strict);
}

TEST(Rows, ComeFromFlagsToo) {
  const std::string groups = "optimizer: {groups: [{match: a}, {match: b}]}\n";
  EXPECT_EQ(good(kData + groups, {"optimizer.groups=[{match: c}]"}).optimizer.groups,
            (std::vector<ParameterGroup>{{.match = "c"}}));
  EXPECT_EQ(good(kData + groups, {"optimizer.groups=[]"}).optimizer.groups,
            std::vector<ParameterGroup>{});
  EXPECT_EQ(good(kData + groups, {"optimizer.groups="}).optimizer.groups,
            std::vector<ParameterGroup>{});
}

TEST(Rows, AreWrittenOnOneLineWithWhatIsNotADefault) {
  const Config config = good(
      kData, {"optimizer.groups=[{match: tok.weight, lr_scale: 1}, {match: \"*\", lr_scale: 2.5, "
              "weight_decay: 0}]"});
  EXPECT_THAT(to_yaml(config),
              HasSubstr("  groups: [{match: tok.weight}, {match: \"*\", lr_scale: 2.5, "
                        "weight_decay: 0}]\n"));
}

TEST(Rows, DecideWhatTrainingComputes) {
  const std::string base = digest(good(kData));
  EXPECT_EQ(digest(good(kData, {"optimizer.groups=[]"})), base);
  const std::string first = digest(good(kData, {"optimizer.groups=[{match: a}]"}));
  EXPECT_NE(first, base);
  EXPECT_NE(digest(good(kData, {"optimizer.groups=[{match: a, lr_scale: 2}]"})), first);
}

TEST(Rows, EachMistakeIsToldWithItsPlace) {
  EXPECT_THAT(mistakes(kData + "optimizer:\n"
                               "  groups:\n"
                               "    - {mach: a}\n"
                               "    - {match: a, lr_scale: 0}\n"
                               "    - word\n"
                               "    - {match: a, weight_decay: off}\n"
                               "    - {match: a, lr_scale: fast, weight_decay: -1}\n"),
              ElementsAre(AllOf(HasSubstr("my.yaml:4"), HasSubstr("groups[0].match: is missing")),
                          AllOf(HasSubstr("my.yaml:4"), HasSubstr("optimizer.groups[0].mach"),
                                HasSubstr("there are: match, lr_scale, weight_decay")),
                          AllOf(HasSubstr("my.yaml:5"), HasSubstr("groups[1].lr_scale")),
                          AllOf(HasSubstr("my.yaml:6"), HasSubstr("{match, lr_scale")),
                          AllOf(HasSubstr("my.yaml:7"), HasSubstr("groups[3].weight_decay")),
                          AllOf(HasSubstr("my.yaml:8"), HasSubstr("groups[4].lr_scale")),
                          AllOf(HasSubstr("my.yaml:8"), HasSubstr("groups[4].weight_decay"))));
  EXPECT_THAT(mistakes(kData, {"optimizer.groups={match: a}"}), ElementsAre(HasSubstr("a list")));
  EXPECT_THAT(mistakes(kData, {"optimizer.groups=[{match: \"\"}]"}),
              ElementsAre(HasSubstr("is missing")));
}

TEST(Rows, OfNamesNeedAFileAndNoMoreStarsThanTheyHave) {
  EXPECT_THAT(mistakes(kData, {"model.init_map=[{from: a, to: b}]"}),
              ElementsAre(HasSubstr("nothing without model.init_from")));
  EXPECT_THAT(mistakes(kData, {"model.init_ignore=[a]"}),
              ElementsAre(HasSubstr("nothing without model.init_from")));
  EXPECT_THAT(
      mistakes(kData, {"model.init_from=w.pt", "model.init_map=[{from: \"a.*\", to: \"*.*\"}]"}),
      ElementsAre(HasSubstr("[0].to has more * than from")));
}

const std::string kStack =
    "[{kind: conv, channels: 8, kernel: 3, padding: 1}, {kind: residual, body: [{kind: relu}, "
    "{kind: residual, body: [{kind: dropout, part: 0.1}], shortcut: [{kind: relu}]}]}, {kind: "
    "flatten}, {kind: linear}]";

TEST(Rows, HoldRowsAndSoModelsInModels) {
  const std::string text = kPictures + "model: {kind: layers, stack: " + kStack + "}\n";
  const Config config = good(text);
  ASSERT_EQ(config.model.stack.size(), 4u);
  const LayerConfig& residual = config.model.stack[1];
  ASSERT_EQ(residual.body.size(), 2u);
  EXPECT_EQ(residual.body[1].body, (std::vector<LayerConfig>{{.kind = "dropout", .part = 0.1}}));
  EXPECT_EQ(residual.body[1].shortcut, (std::vector<LayerConfig>{{.kind = "relu"}}));
  EXPECT_THAT(to_yaml(config), HasSubstr("\n  stack: " + kStack + "\n"));
  EXPECT_EQ(good(to_yaml(config)), config);
  EXPECT_NE(digest(good(text, {"model.stack=[{kind: flatten}, {kind: linear}]"})), digest(config));
}

TEST(Rows, OfAKindReadWhatThatKindReads) {
  EXPECT_THAT(
      mistakes(kPictures + "model:\n"
                           "  kind: layers\n"
                           "  stack:\n"
                           "    - {kind: relu, channels: 5}\n"
                           "    - {kind: conv, channels: 5}\n"
                           "    - {kind: residual, body: [{kind: lineer}]}\n"
                           "    - {part: 0.5}\n"
                           "    - {kind: max_pool, kernel: 0}\n"),
      ElementsAre(
          AllOf(HasSubstr("my.yaml:6"),
                HasSubstr("model.stack[0].channels: is not read by kind relu (only by conv)")),
          AllOf(HasSubstr("my.yaml:7"), HasSubstr("model.stack[1].kernel: is missing")),
          AllOf(HasSubstr("my.yaml:8"), HasSubstr("model.stack[2].body[0].kind: is 'lineer'"),
                HasSubstr("did you mean 'linear'?")),
          AllOf(HasSubstr("my.yaml:9"), HasSubstr("model.stack[3].kind: is missing")),
          AllOf(HasSubstr("my.yaml:10"), HasSubstr("model.stack[4].kernel"))));
  EXPECT_THAT(mistakes(kPictures, {"model.kind=layers"}),
              ElementsAre(HasSubstr("model.stack: is missing")));
}

TEST(Rows, OfTokensBeginWithAnEmbedding) {
  const std::string stack =
      "model.stack=[{kind: embedding, vocab: 256, width: 8}, {kind: lstm, width: 8}, {kind: "
      "linear}]";
  EXPECT_THAT(mistakes(kData, {"model.kind=layers", stack}), ::testing::IsEmpty());
  EXPECT_THAT(mistakes(kPictures, {"model.kind=layers", stack}),
              ::testing::Contains(HasSubstr("write language_model")));
  EXPECT_THAT(mistakes(kData, {"model.kind=layers", "model.stack=[{kind: linear}]"}),
              ::testing::Contains(HasSubstr("layers that begin with an embedding")));
}

}  // namespace
}  // namespace stoker::config::test
