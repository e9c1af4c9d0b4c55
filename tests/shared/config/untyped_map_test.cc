// A mapping with user-defined keys: model.args of a plugin.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string args_of(const Config& config) { return std::get<PluginConfig>(config.model.arch).args; }

std::string with(const std::string& args) {
  return kImageData + "model:\n  name: plugin\n  path: m.so\n  args: " + args + "\n";
}
std::string json_text(const std::string& args, const std::vector<std::string>& flags = {}) {
  return args_of(valid_config(with(args), flags));
}

TEST(UntypedMapTest, StoresJsonWithSortedKeys) {
  EXPECT_EQ(json_text("{width: 64, act: relu, blocks: [{wide: true}, {wide: false}]}"),
            R"({"act": "relu", "blocks": [{"wide": true}, {"wide": false}], "width": 64})");
  EXPECT_EQ(json_text("{}"), "{}");
  EXPECT_EQ(args_of(valid_config(kImageData + "model: {name: plugin, path: m.so}\n")), "{}");
}

TEST(UntypedMapTest, DistinguishesNumbersAndTexts) {
  EXPECT_EQ(json_text("{a: 1e-3, b: +7, c: .5, d: 007, e: 18446744073709551616, f: -0}"),
            R"({"a": 0.001, "b": 7, "c": 0.5, "d": 7, "e": 18446744073709551616, "f": -0})");
  EXPECT_EQ(json_text("{a: \"7\", b: 'true', c: 1.2.3, d: inf, e: .nan, f: 0x10, g: yes}"),
            R"({"a": "7", "b": "true", "c": "1.2.3", "d": "inf", "e": ".nan", "f": "0x10", )"
            R"("g": "yes"})");
  EXPECT_EQ(json_text("{a: , b: null, c: ~, d: \"null\"}"),
            R"({"a": null, "b": null, "c": null, "d": "null"})");
  EXPECT_EQ(json_text(R"({a: 'x"y', b: "back\\slash", "c d": "é"})"),
            R"({"a": "x\"y", "b": "back\\slash", "c d": "é"})");
}

TEST(UntypedMapTest, SurvivesRoundTrip) {
  const Config config =
      valid_config(with(R"({a: "7", b: [1.5e-9, null, {c: 'x"\'}], "d: e": no})"));
  const auto again = parsed(to_yaml(config), {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(args_of(*again), args_of(config));
  EXPECT_EQ(*again, config);
}

TEST(UntypedMapTest, AcceptsOverridesOfSingleKeys) {
  EXPECT_EQ(json_text("{width: 64, act: relu}", {"model.args.width=8"}),
            R"({"act": "relu", "width": 8})");
  EXPECT_EQ(json_text("{width: 64, act: relu}", {"model.args.act="}), R"({"width": 64})");
  EXPECT_EQ(json_text("{width: 64}", {"model.args={deep: {er: 1}}"}), R"({"deep": {"er": 1}})");
}

TEST(UntypedMapTest, ChangesDigestRegardlessOfKeyOrder) {
  const std::string one = digest(valid_config(with("{a: 1, b: 2}")));
  EXPECT_EQ(digest(valid_config(with("{b: 2, a: 1}"))), one);
  EXPECT_NE(digest(valid_config(with("{a: 1, b: 3}"))), one);
  EXPECT_EQ(digest(valid_config(with("{a: 1, b: 2}"), {"model.path=moved.so"})), one);
}

TEST(UntypedMapTest, ReportsErrorsWithLocation) {
  EXPECT_THAT(errors_of(with("[1, 2]")),
              ElementsAre(HasSubstr("must be a mapping such as {width: 64}, got a list")));
  EXPECT_THAT(errors_of(with("{a: [\"x\\ty\"]}")),
              ElementsAre(HasSubstr("model.args.a[0]: contains a control character")));
}

TEST(UserModelTest, RequiresPathAndAcceptsAnyTask) {
  EXPECT_THAT(errors_of(kImageData + "model: {name: plugin}\n"),
              ElementsAre(HasSubstr("model.path: is required")));
  EXPECT_THAT(errors_of(kImageData + "model: {name: torchscript}\n"),
              ElementsAre(HasSubstr("model.path: is required")));
  EXPECT_THAT(errors_of(kImageData + "model: {name: torchscript, path: m.pt, args: {a: 1}}\n"),
              ElementsAre(HasSubstr("not supported by model torchscript (only by plugin)")));
  EXPECT_THAT(errors_of(kImageData + "model: {name: compiled}\n"),
              ElementsAre(HasSubstr("model.path: is required")));
  valid_config(kTextData + "model: {name: plugin, path: m.so}\n");
  valid_config(kTextData + "model: {name: compiled, path: m.json}\ntask: {name: custom}\n");
  valid_config(kImageData + "model: {name: plugin, path: m.so}\n");
}

// A compiled model has its loss, its initial weights and its memory formats.
TEST(UserModelTest, RejectsWhatACompiledModelCannotDo) {
  const std::string compiled = "model: {name: compiled, path: m.json}\n";
  const auto error = [&](const std::string& more) {
    return errors_of(kImageData + compiled + more);
  };
  EXPECT_THAT(
      errors_of(kTextData + "model: {name: torchscript, path: m.pt}\ntask: {name: custom}\n"),
      ElementsAre(HasSubstr("only model.name exported and compiled do")));
  EXPECT_THAT(error("train: {channels_last: true}\n"),
              ElementsAre(HasSubstr("train.channels_last: a compiled model has fixed")));
  EXPECT_THAT(error("run: {deterministic: true}\n"), ElementsAre(HasSubstr("num_threads: 1 only")));
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\n" + compiled +
                        "task: {name: classification, label_smoothing: 0.1}\n"),
              ElementsAre(HasSubstr("has no effect on a compiled model")));
  EXPECT_THAT(
      errors_of("data: {train: {format: cifar10, path: a, batch_transforms: [mixup: {}]}}\n" +
                compiled + "task: {name: classification}\n"),
      ElementsAre(HasSubstr("change labels")));
  EXPECT_THAT(error("train: {precision: fp16}\n"), ElementsAre(HasSubstr("in fp32 or bf16")));
  EXPECT_THAT(errors_of(kImageData +
                        "model: {name: compiled, path: m.json, init: {weight: {zeros: {}}}}\n"),
              ElementsAre(HasSubstr("model.init: a compiled model starts with the weights")));
  EXPECT_EQ(valid_config(kImageData + compiled).run.rng, Rng::kPerTicket) << "for its seeds";
  EXPECT_EQ(valid_config(kImageData + compiled + "run: {rng: sequential}\n").run.rng,
            Rng::kSequential);
}

// An exported model has its loss and its initial weights; the rest is chosen by the run.
TEST(UserModelTest, RejectsWhatAnExportedModelCannotDo) {
  const std::string exported = "model: {name: exported, path: m}\n";
  const Config config =
      valid_config(kImageData + exported +
                   "train: {channels_last: true, precision: fp16}\nrun: {deterministic: true}\n");
  EXPECT_EQ(config.run.rng, Rng::kPerTicket) << "for its dropout";
  valid_config(kTextData + exported + "task: {name: custom}\n");
  EXPECT_THAT(errors_of(kImageData + "model: {name: exported}\n"),
              ElementsAre(HasSubstr("model.path: is required")));
  EXPECT_THAT(
      errors_of(kImageData + "model: {name: exported, path: m, init: {weight: {zeros: {}}}}\n"),
      ElementsAre(HasSubstr("model.init: an exported model starts with the weights")));
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\n" + exported +
                        "task: {name: classification, label_smoothing: 0.1}\n"),
              ElementsAre(HasSubstr("has no effect on an exported model")));
  EXPECT_THAT(
      errors_of("data: {train: {format: cifar10, path: a, batch_transforms: [mixup: {}]}}\n" +
                exported + "task: {name: classification}\n"),
      ElementsAre(HasSubstr("which the loss of an exported model does not take")));
}

}  // namespace
}  // namespace stoker::config::test
