// A mapping with user-defined keys: model.args of a plugin.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::AllOf;
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
  EXPECT_THAT(errors_of(kImageData + "model: {name: exported, path: m, args: {a: 1}}\n"),
              ElementsAre(HasSubstr("not supported by model exported (only by plugin)")));
  valid_config(kTextData + "model: {name: plugin, path: m.so}\n");
  valid_config(kImageData + "model: {name: plugin, path: m.so}\n");
}

// The other keys of such a model are not reported.
TEST(UserModelTest, NamesReplacementOfRemovedModels) {
  for (const std::string name : {"compiled", "torchscript"})
    for (const std::string task : {"classification", "custom"})
      EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: images}}\ntask: {name: " + task +
                            "}\nmodel: {name: " + name + ", path: m, num_classes: 10}\n"),
                  ElementsAre(AllOf(HasSubstr("model.name: " + name + " was removed; "),
                                    HasSubstr("stoker-export"), HasSubstr("name: exported"))))
          << task;
}

// An exported model has its loss and its initial weights; the rest is chosen by the run.
TEST(UserModelTest, RejectsWhatAnExportedModelCannotDo) {
  const std::string exported = "model: {name: exported, path: m}\n";
  const Config config =
      valid_config(kImageData + exported +
                   "train: {channels_last: true, precision: fp16}\nrun: {deterministic: true}\n");
  EXPECT_EQ(config.run.rng, Rng::kPerTicket) << "for its dropout";
  EXPECT_EQ(valid_config(kImageData + exported + "run: {rng: sequential}\n").run.rng,
            Rng::kSequential);
  valid_config(kTextData + exported + "task: {name: custom}\n");
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\n"
                        "model: {name: sequential, layers: [flatten, linear: {out_features: 10}]}\n"
                        "task: {name: custom}\n"),
              ElementsAre(HasSubstr("only model.name exported and plugin do")));
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

// Of a module that gets the fields of a sample.
TEST(UserModelTest, GetsListsWithNamesOfTheirOwn) {
  const auto with = [](const std::string& fields, const std::string& model) {
    return "data: {train: {format: jsonl, path: a, fields: {input: x, " + fields + "}}}\n" + model;
  };
  const std::string exported = "model: {name: exported, path: m}\ntask: {name: custom}\n";
  const Config config = valid_config(
      with("others: w, lists: [{name: boxes, field: o.b, shape: [4], max_length: 9}, {name: ids, "
           "dtype: int64}]",
           exported));
  const std::vector<ListConfig>& lists = config.data.at("train").fields()->lists;
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[0], (ListConfig{.name = "boxes", .field = "o.b", .shape = {4}, .max_length = 9}));
  EXPECT_EQ(lists[1], (ListConfig{.name = "ids", .dtype = NumberList::kInt64}));
  const auto error = [&](const std::string& fields, const std::string& text) {
    EXPECT_THAT(errors_of(with(fields, exported)),
                ElementsAre(HasSubstr("data.train.fields.lists" + text)));
  };
  error("lists: [{dtype: int64}]", "[0].name: is required");
  error("lists: [{name: a}, {name: a}]", ": has 'a' twice");
  error("lists: [{name: label}]", ": 'label' is not a name for a tensor");
  error("lists: [{name: a, shape: [0]}]", "[0].shape");
  error("lists: [{name: a, padding_value: -1}]", ": 'a' has padding_value without max_length");
  EXPECT_THAT(errors_of(with("label: y, lists: [{name: a}]",
                             "model: {name: mlp}\ntask: {name: classification}\n")),
              ElementsAre(HasSubstr("fields.lists: is only used by a model with its own loss")));
}

}  // namespace
}  // namespace stoker::config::test
