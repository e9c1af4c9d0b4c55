// Lists of mappings: optimizer.param_groups, model.pretrained.key_mapping, model.layers.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ListSettingsTest, ReadsItemsInOrderWithDefaults) {
  const Config config = valid_config(kTextData +
                                     "optimizer:\n"
                                     "  param_groups:\n"
                                     "    - params: \"tok.*\"\n"
                                     "      lr_scale: 0.1\n"
                                     "    - {params: \"*.bias\", weight_decay: 0}\n"
                                     "model:\n"
                                     "  name: gpt\n"
                                     "  pretrained:\n"
                                     "    path: w.pt\n"
                                     "    key_mapping: [{from: \"module.*\", to: \"*\"}]\n"
                                     "    exclude: [\"head.*\"]\n"
                                     "    strict: false\n");
  EXPECT_EQ(config.optimizer.param_groups,
            (std::vector<ParamGroup>{{.params = "tok.*", .lr_scale = 0.1, .weight_decay = {}},
                                     {.params = "*.bias", .lr_scale = 1, .weight_decay = 0.0}}));
  EXPECT_EQ(config.model.pretrained,
            (PretrainedConfig{.path = "w.pt",
                              .key_mapping = {{.from = "module.*", .to = "*"}},
                              .strict = false,
                              .exclude = {"head.*"}}));
}

TEST(ListSettingsTest, AcceptsOverrides) {
  const std::string groups = "optimizer: {param_groups: [{params: a}, {params: b}]}\n";
  const auto groups_with = [&](const std::string& flag) {
    return valid_config(kTextData + groups, {flag}).optimizer.param_groups;
  };
  EXPECT_EQ(groups_with("optimizer.param_groups=[{params: c}]"),
            (std::vector<ParamGroup>{{.params = "c"}}));
  EXPECT_THAT(groups_with("optimizer.param_groups=[]"), IsEmpty());
  EXPECT_THAT(groups_with("optimizer.param_groups="), IsEmpty());
}

TEST(ListSettingsTest, WritesItemsOnOneLineWithoutDefaults) {
  const Config config = valid_config(
      kTextData, {"optimizer.param_groups=[{params: tok.weight, lr_scale: 1}, {params: "
                  "\"*\", lr_scale: 2.5, weight_decay: 0}]"});
  EXPECT_THAT(to_yaml(config),
              HasSubstr("  param_groups: [{params: tok.weight}, {params: \"*\", lr_scale: 2.5, "
                        "weight_decay: 0}]\n"));
}

TEST(ListSettingsTest, ChangesDigest) {
  const std::string base = digest(valid_config(kTextData));
  EXPECT_EQ(digest(valid_config(kTextData, {"optimizer.param_groups=[]"})), base);
  const std::string first =
      digest(valid_config(kTextData, {"optimizer.param_groups=[{params: a}]"}));
  EXPECT_NE(first, base);
  EXPECT_NE(digest(valid_config(kTextData, {"optimizer.param_groups=[{params: a, lr_scale: 2}]"})),
            first);
}

TEST(ListSettingsTest, ReportsEveryErrorWithItsItem) {
  EXPECT_THAT(
      errors_of(kTextData + "optimizer:\n"
                            "  param_groups:\n"
                            "    - {parms: a}\n"
                            "    - {params: a, lr_scale: 0}\n"
                            "    - word\n"
                            "    - {params: a, weight_decay: off}\n"
                            "    - {params: a, lr_scale: fast, weight_decay: -1}\n"
                            "    - {lr_scale: 1}\n"),
      ElementsAre("my.yaml:4:8: optimizer.param_groups[0]: unknown key 'parms'; did you mean "
                  "'params'?",
                  StartsWith("my.yaml:5:29: optimizer.param_groups[1].lr_scale: must be a number"),
                  "my.yaml:6:7: optimizer.param_groups[2]: must be a mapping of the form {params, "
                  "kind, lr_scale, weight_decay}, got 'word'",
                  StartsWith("my.yaml:7:33: optimizer.param_groups[3].weight_decay: must be"),
                  StartsWith("my.yaml:8:29: optimizer.param_groups[4].lr_scale: must be"),
                  StartsWith("my.yaml:8:49: optimizer.param_groups[4].weight_decay: must be"),
                  "my.yaml:9:7: optimizer.param_groups[5].params: is required; set it to the glob "
                  "of parameter names, for example 'params: \"head.*\"'"));
  EXPECT_THAT(
      errors_of(kTextData, {"optimizer.param_groups={params: a}"}),
      ElementsAre(HasSubstr("must be a list such as [{params, kind, lr_scale, weight_decay}], "
                            "got a mapping")));
  EXPECT_THAT(errors_of(kTextData, {"optimizer.param_groups=[{params: \"\"}]"}),
              ElementsAre(HasSubstr("optimizer.param_groups[0].params: must not be empty")));
  EXPECT_THAT(errors_of(kTextData, {"optimizer.param_groups=[{kind: null}]"}),
              ElementsAre(HasSubstr("optimizer.param_groups[0].params: or kind is required")));
}

TEST(ListSettingsTest, RequiresPathOfPretrainedWeights) {
  EXPECT_THAT(errors_of(kTextData, {"model.pretrained.key_mapping=[{from: a, to: b}]"}),
              ElementsAre(HasSubstr("model.pretrained.path: is required")));
  EXPECT_THAT(errors_of(kTextData, {"model.pretrained.exclude=[a]"}),
              ElementsAre(HasSubstr("model.pretrained.path: is required")));
}

TEST(ListSettingsTest, LimitsWildcardsOfKeyMapping) {
  EXPECT_THAT(
      errors_of(kTextData, {"model.pretrained={path: w.pt, key_mapping: [{from: \"a.*\", to: "
                            "\"*.*\"}]}"}),
      ElementsAre(HasSubstr("model.pretrained.key_mapping[0].to: has more * than from, 'a.*'")));
}

// ---- Layers

const std::string kLayers =
    "[conv2d: {out_channels: 8, kernel_size: 3, padding: 1}, residual: {body: [relu, residual: "
    "{body: [dropout: {p: 0.1}], shortcut: [relu]}]}, max_pool2d: {kernel_size: 2}, flatten, "
    "linear]";

TEST(LayersTest, ReadsLayersInLayers) {
  const std::string text = kImageData + "model: {name: sequential, layers: " + kLayers + "}\n";
  const Config config = valid_config(text);
  const auto& layers = std::get<SequentialConfig>(config.model.arch).layers;
  ASSERT_EQ(layers.size(), 5u);
  EXPECT_EQ(std::get<Conv2dLayer>(layers[0].variant()),
            (Conv2dLayer{.out_channels = 8, .kernel_size = 3, .padding = 1}));
  const auto& residual = std::get<ResidualLayer>(layers[1].variant());
  ASSERT_EQ(residual.body.size(), 2u);
  const auto& inner = std::get<ResidualLayer>(residual.body[1].variant());
  EXPECT_EQ(inner.body, (std::vector<Layer>{DropoutLayer{.p = 0.1}}));
  EXPECT_EQ(inner.shortcut, (std::vector<Layer>{ReluLayer{}}));
  EXPECT_EQ(std::get<MaxPool2dLayer>(layers[2].variant()).stride, std::nullopt);
  EXPECT_EQ(layers[4], Layer(LinearLayer{}));
  EXPECT_EQ(valid_config(to_yaml(config)), config);
  EXPECT_NE(digest(valid_config(text, {"model.layers=[flatten, linear]"})), digest(config));
}

TEST(LayersTest, AcceptsNameWithAndWithoutArguments) {
  const std::string model = kImageData + "model: {name: sequential, layers: ";
  const Config expected = valid_config(model + "[flatten, linear: {out_features: null}]}\n");
  for (const std::string layers :
       {"[flatten, linear]", "[flatten: {}, linear: {}]", "[flatten: null, linear: ]",
        "[{flatten: {}}, {linear: {bias: true}}]"})
    EXPECT_EQ(valid_config(model + layers + "}\n"), expected) << layers;
}

TEST(LayersTest, ReportsEveryErrorWithItsLayer) {
  EXPECT_THAT(
      errors_of(kImageData + "model:\n"
                             "  name: sequential\n"
                             "  layers:\n"
                             "    - relu: {out_channels: 5}\n"
                             "    - conv2d: {out_channels: 5}\n"
                             "    - residual: {body: [lineer]}\n"
                             "    - {relu: {}, gelu: {}}\n"
                             "    - max_pool2d: {kernel_size: 0}\n"
                             "    - dropout: 0.5\n"
                             "    - embedding\n"),
      ElementsAre(
          "my.yaml:6:14: model.layers[0].relu: unknown key 'out_channels'; it has no keys, remove "
          "this one",
          AllOf(StartsWith("my.yaml:7:7: "),
                HasSubstr("model.layers[1].conv2d.kernel_size: is required")),
          AllOf(StartsWith("my.yaml:8:25: model.layers[2].residual.body[0]: must be conv2d, "),
                HasSubstr("got 'lineer'; did you mean 'linear'?")),
          "my.yaml:9:7: model.layers[3]: must be a mapping with one key, '- name: {arguments}', "
          "got a mapping",
          StartsWith("my.yaml:10:33: model.layers[4].max_pool2d.kernel_size: must be an integer"),
          "my.yaml:11:16: model.layers[5].dropout: must be a mapping of arguments, got '0.5'",
          HasSubstr("model.layers[6].embedding.num_embeddings: is required"),
          HasSubstr("model.layers[6].embedding.embedding_dim: is required")));
  EXPECT_THAT(errors_of(kImageData, {"model.name=sequential"}),
              ElementsAre(HasSubstr("model.layers: is required; set it to the list of layers")));
  EXPECT_THAT(errors_of(kImageData, {"model={name: sequential, layers: []}"}),
              ElementsAre(HasSubstr("must not be empty")));
}

TEST(LayersTest, RequiresEmbeddingForTokens) {
  const std::string layers =
      "model.layers=[embedding: {num_embeddings: 256, embedding_dim: 8}, lstm: {hidden_size: 8}, "
      "linear]";
  EXPECT_THAT(errors_of(kTextData, {"model.name=sequential", layers}), IsEmpty());
  EXPECT_THAT(errors_of(kImageData, {"model.name=sequential", layers}),
              testing::Contains(HasSubstr("set language_modeling")));
  EXPECT_THAT(errors_of(kTextData, {"model.name=sequential", "model.layers=[linear]"}),
              testing::Contains(HasSubstr("sequential with an embedding as its first layer")));
}

}  // namespace
}  // namespace stoker::config::test
