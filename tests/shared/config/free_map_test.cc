// A mapping of keys that stoker does not know: model.parameters.
#include "shared/config/schema.h"
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string with(const std::string& parameters) {
  return kPictures + "model:\n  kind: plugin\n  path: m.so\n  parameters: " + parameters + "\n";
}
std::string json(const std::string& parameters, const std::vector<std::string>& flags = {}) {
  return good(with(parameters), flags).model.parameters;
}

TEST(FreeMap, IsKeptAsJsonWithItsKeysInOrder) {
  EXPECT_EQ(json("{width: 64, act: relu, blocks: [{wide: true}, {wide: false}]}"),
            R"({"act": "relu", "blocks": [{"wide": true}, {"wide": false}], "width": 64})");
  EXPECT_EQ(json("{}"), "{}");
  EXPECT_EQ(good(kPictures + "model: {kind: plugin, path: m.so}\n").model.parameters, "{}");
}

TEST(FreeMap, NumbersAreNumbersAndTextsAreTexts) {
  EXPECT_EQ(json("{a: 1e-3, b: +7, c: .5, d: 007, e: 18446744073709551616, f: -0}"),
            R"({"a": 0.001, "b": 7, "c": 0.5, "d": 7, "e": 18446744073709551616, "f": -0})");
  EXPECT_EQ(json("{a: \"7\", b: 'true', c: 1.2.3, d: inf, e: .nan, f: 0x10, g: yes}"),
            R"({"a": "7", "b": "true", "c": "1.2.3", "d": "inf", "e": ".nan", "f": "0x10", )"
            R"("g": "yes"})");
  EXPECT_EQ(json("{a: , b: null, c: ~, d: \"null\"}"),
            R"({"a": null, "b": null, "c": null, "d": "null"})");
  EXPECT_EQ(json(R"({a: 'x"y', b: "back\\slash", "c d": "é"})"),
            R"({"a": "x\"y", "b": "back\\slash", "c d": "é"})");
}

TEST(FreeMap, ComesBackFromTheWrittenConfiguration) {
  const Config config = good(with(R"({a: "7", b: [1.5e-9, null, {c: 'x"\'}], "d: e": no})"));
  const auto again = parsed(to_yaml(config), {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->model.parameters, config.model.parameters);
  EXPECT_EQ(*again, config);
}

TEST(FreeMap, IsChangedKeyByKeyFromTheCommandLine) {
  EXPECT_EQ(json("{width: 64, act: relu}", {"model.parameters.width=8"}),
            R"({"act": "relu", "width": 8})");
  EXPECT_EQ(json("{width: 64, act: relu}", {"model.parameters.act="}), R"({"width": 64})");
  EXPECT_EQ(json("{width: 64}", {"model.parameters={deep: {er: 1}}"}), R"({"deep": {"er": 1}})");
}

TEST(FreeMap, DecidesWhatTrainingComputesWhateverTheOrderOfItsKeys) {
  const std::string one = digest(good(with("{a: 1, b: 2}")));
  EXPECT_EQ(digest(good(with("{b: 2, a: 1}"))), one);
  EXPECT_NE(digest(good(with("{a: 1, b: 3}"))), one);
  EXPECT_EQ(digest(good(with("{a: 1, b: 2}"), {"model.path=moved.so"})), one);
}

TEST(FreeMap, MistakesAreToldWithTheirPlace) {
  EXPECT_THAT(mistakes(with("[1, 2]")), ElementsAre(HasSubstr("it must be a mapping, such as")));
  EXPECT_THAT(mistakes(with("{a: [\"x\\ty\"]}")),
              ElementsAre(HasSubstr("model.parameters.a[0]: has a control character")));
}

TEST(FileModels, NeedAPathAndTakeAnyTask) {
  EXPECT_THAT(mistakes(kPictures + "model: {kind: plugin}\n"),
              ElementsAre(HasSubstr("model.path: is missing")));
  EXPECT_THAT(mistakes(kPictures + "model: {kind: torchscript}\n"),
              ElementsAre(HasSubstr("model.path: is missing")));
  EXPECT_THAT(mistakes(kPictures + "model: {kind: torchscript, path: m.pt, parameters: {a: 1}}\n"),
              ElementsAre(HasSubstr("is not read by kind torchscript (only by plugin)")));
  good(kData + "model: {kind: plugin, path: m.so}\n");
  good(kPictures + "model: {kind: plugin, path: m.so}\n");
}

}  // namespace
}  // namespace stoker::config::test
