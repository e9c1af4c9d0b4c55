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

}  // namespace
}  // namespace stoker::config::test
