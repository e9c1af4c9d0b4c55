// config.json of image models, of transformers and timm, and how their images were prepared.
#include "shared/config/image_model_config.h"

#include <map>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/huggingface_config.h"
#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kImageSettings[] =
    R"("num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20,
       "image_size": 32, "patch_size": 8)";

std::string vit_json(const std::string& more = "") {
  return std::string(R"({"model_type": "vit", )") + kImageSettings +
         (more.empty() ? "" : ", " + more) + "}";
}
std::string resnet_json(const std::string& more = "") {
  return R"({"model_type": "resnet")" + (more.empty() ? "" : ", " + more) + "}";
}
std::string timm_json(const std::string& architecture, const std::string& more = "") {
  return R"({"architecture": ")" + architecture + "\"" + (more.empty() ? "" : ", " + more) + "}";
}

ModelVariant image_arch_of(const std::string& json) {
  const auto config = parse_huggingface_config(json, "config.json");
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? config->arch : ModelVariant();
}
std::string image_error_of(const std::string& json) {
  return parse_huggingface_config(json, "config.json").status().message();
}

VitConfig small_vit() {
  VitConfig vit;
  vit.image_size = 32;
  vit.patch_size = 8;
  vit.num_layers = 2;
  vit.num_heads = 3;
  vit.hidden_dim = 12;
  vit.mlp_dim = 20;
  return vit;
}

TEST(ImageModelConfigTest, ReadsVitOfTransformers) {
  VitConfig expected = small_vit();
  expected.layer_norm_eps = 1e-12;
  EXPECT_TRUE(image_arch_of(vit_json()) == ModelVariant(expected))
      << "with the eps of transformers";
  expected.layer_norm_eps = 1e-6;
  expected.dropout = 0.1;
  EXPECT_TRUE(image_arch_of(vit_json(R"("layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.1)")) ==
              ModelVariant(expected));
}

TEST(ImageModelConfigTest, ReadsResnetOfTransformers) {
  EXPECT_TRUE(image_arch_of(resnet_json()) == ModelVariant(ResnetConfig{.depth = 50}));
  EXPECT_TRUE(image_arch_of(resnet_json(R"("depths": [3, 4, 23, 3])")) ==
              ModelVariant(ResnetConfig{.depth = 101}));
  EXPECT_TRUE(image_arch_of(resnet_json(R"("layer_type": "basic", "depths": [2, 2, 2, 2],
                                     "hidden_sizes": [64, 128, 256, 512])")) ==
              ModelVariant(ResnetConfig{.depth = 18}));
}

TEST(ImageModelConfigTest, ReadsTimm) {
  EXPECT_TRUE(image_arch_of(timm_json("resnet50", R"("global_pool": "avg")")) ==
              ModelVariant(ResnetConfig{.depth = 50}));
  EXPECT_TRUE(image_arch_of(timm_json("inception_v3", R"("model_args": {"aux_logits": true})")) ==
              ModelVariant(InceptionV3Config{}));
  VitConfig vit;
  vit.image_size = 384;
  vit.num_heads = 6;
  vit.hidden_dim = 384;
  vit.mlp_dim = 1536;
  EXPECT_TRUE(image_arch_of(timm_json("vit_small_patch16_384")) == ModelVariant(vit));
  vit.image_size = 48;
  EXPECT_TRUE(image_arch_of(timm_json("vit_small_patch16_384",
                                      R"("pretrained_cfg": {"input_size": [3, 48, 48]})")) ==
              ModelVariant(vit));
  EXPECT_TRUE(
      image_arch_of(timm_json("vit_base_patch16_224", R"("model_args": {"img_size": [32, 32],
      "patch_size": 8, "depth": 2, "num_heads": 3, "embed_dim": 12, "mlp_ratio": 1.67,
      "global_pool": "token", "num_classes": 5, "in_chans": 1})")) == ModelVariant(small_vit()));
}

TEST(ImageModelConfigTest, LeavesTheDropoutOfAttentionToTheConfiguration) {
  const auto found =
      parse_huggingface_config(vit_json(R"("attention_probs_dropout_prob": 0.1)"), "config.json");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->undecided.at("model.dropout"),
            "'attention_probs_dropout_prob' 0.1 is not supported (only 0)");
}

TEST(ImageModelConfigTest, RejectsWhatChangesTheResult) {
  for (const auto& [json, message] : std::map<std::string, std::string>{
           {vit_json(R"("hidden_act": "gelu_new")"), "'hidden_act' \"gelu_new\" is not supported"},
           {vit_json(R"("qkv_bias": false)"), "'qkv_bias' false is not supported (only true)"},
           {R"({"model_type": "vit"})", "'num_hidden_layers' is missing"},
           {vit_json(R"("num_attention_heads": 5)"), "not a multiple of num_attention_heads"},
           {resnet_json(R"("downsample_in_bottleneck": true)"),
            "'downsample_in_bottleneck' true is not supported (only false): a bottleneck has its "
            "stride in the 3 x 3 convolution"},
           {resnet_json(R"("downsample_in_first_stage": true)"),
            "'downsample_in_first_stage' true"},
           {resnet_json(R"("hidden_act": "gelu")"), "'hidden_act' \"gelu\""},
           {resnet_json(R"("embedding_size": 32)"), "'embedding_size' 32"},
           {resnet_json(R"("layer_type": "basic", "depths": [1, 1, 1, 1])"),
            "'depths' [1,1,1,1] of layer_type basic is not supported"},
           {resnet_json(R"("hidden_sizes": [64, 128, 256, 512])"),
            "'hidden_sizes' [64,128,256,512]"},
           {resnet_json(R"("depths": [3, "a"])"), "'depths' must be an integer"},
           {timm_json("resnet50d"), "'architecture' \"resnet50d\" is not supported (only resnet18"},
           {timm_json("vit_base_patch16_clip_224"), "'architecture'"},
           {timm_json("vit_base_patch16_224", R"("global_pool": "avg")"),
            "'global_pool' \"avg\" is not supported (only \"token\")"},
           {timm_json("vit_base_patch16_224", R"("model_args": {"qk_norm": true})"),
            "'model_args' has 'qk_norm', which is not supported"},
           {timm_json("vit_base_patch16_224", R"("model_args": {"img_size": [32, 64]})"),
            "'img_size' [32,64] is not supported (only squares)"},
           {timm_json("vit_base_patch16_224", R"("model_args": {"num_heads": 7})"),
            "'embed_dim' is not a multiple of num_heads"},
           {timm_json("vit_base_patch16_224", R"("model_args": {"mlp_ratio": 1e300})"),
            "'mlp_ratio' 1e+300 is not supported (at most 1e+06)"},
           {timm_json("resnet50", R"("model_args": {"output_stride": 8})"), "'output_stride'"}}) {
    EXPECT_THAT(image_error_of(json), HasSubstr(message)) << json;
  }
}

TEST(ImageModelConfigTest, WritesWhatItReads) {
  for (const ModelVariant& arch :
       {ModelVariant(ResnetConfig{.depth = 18}), ModelVariant(ResnetConfig{.depth = 152}),
        ModelVariant(small_vit())}) {
    const auto transformers = format_huggingface_config(arch, {.num_labels = 3, .num_channels = 1});
    ASSERT_TRUE(transformers.ok()) << transformers.status().to_string();
    EXPECT_TRUE(image_arch_of(*transformers) == arch) << *transformers;
    const auto timm = format_timm_config(arch, {.num_classes = 3, .image_size = 32});
    ASSERT_TRUE(timm.ok()) << timm.status().to_string();
    EXPECT_TRUE(image_arch_of(*timm) == arch) << *timm;
  }
  EXPECT_THAT(format_huggingface_config(ResnetConfig{.depth = 20}).status().message(),
              HasSubstr("model resnet20 has no Hugging Face format"));
  EXPECT_THAT(format_timm_config(ResnetConfig{.depth = 20}, {}).status().message(),
              HasSubstr("model resnet20 has no timm format"));
  VitConfig other = small_vit();
  other.layer_norm_eps = 1e-12;
  EXPECT_THAT(format_timm_config(other, {}).status().message(),
              HasSubstr("timm's vit has model.layer_norm_eps 1e-06, not 1e-12"));
}

TEST(ImageModelConfigTest, WritesTheNameOfAPublishedVit) {
  VitConfig vit;
  vit.image_size = 384;
  const auto text = format_timm_config(
      vit, {.num_classes = 7, .image_size = 384, .normalize = Normalize{{0.5}, {0.25}}});
  const auto object = boost::json::parse(*text).as_object();
  EXPECT_EQ(object.at("architecture"), "vit_base_patch16_224");
  EXPECT_EQ(boost::json::serialize(object.at("model_args")), R"({"img_size":384})");
  const auto& cfg = object.at("pretrained_cfg").as_object();
  EXPECT_EQ(boost::json::serialize(cfg.at("input_size")), "[3,384,384]");
  EXPECT_EQ(boost::json::serialize(cfg.at("mean")), "[5E-1,5E-1,5E-1]");
  EXPECT_EQ(cfg.at("num_classes"), 7);
  EXPECT_EQ(cfg.at("classifier"), "head");
}

class ImageFolderTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    stoker::test::write_whole(scratch_ / name, text);
  }
  std::string with(const std::string& model) {
    return kImageData + "model: {" + model + ", pretrained: {path: " + scratch_.path() + "}}\n";
  }
  stoker::test::TemporaryDirectory scratch_;
};

TEST_F(ImageFolderTest, DeterminesTheSettingsOfVit) {
  write("config.json", vit_json());
  const Config config = valid_config(with("name: vit"));
  VitConfig expected = small_vit();
  expected.layer_norm_eps = 1e-12;
  EXPECT_TRUE(config.model.arch == ModelVariant(expected)) << to_yaml(config);
  EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok());
  EXPECT_THAT(errors_of(with("name: vit, num_layers: 3")),
              ElementsAre(HasSubstr("model.num_layers is 3, but num_hidden_layers 2")));
}

// Its sizes are those of its name.
TEST_F(ImageFolderTest, SetsTheEpsOfAPreset) {
  write("config.json", R"({"model_type": "vit", "num_hidden_layers": 12, "num_attention_heads": 12,
                           "hidden_size": 768, "intermediate_size": 3072, "image_size": 224,
                           "patch_size": 16})");
  const Config config = valid_config(with("name: vit_b_16"));
  EXPECT_EQ(std::get<VitConfig>(config.model.arch).layer_norm_eps, 1e-12);
  EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok());
  const Config other = valid_config(with("name: vit_b_32"));
  EXPECT_THAT(check_huggingface_config(other.model, scratch_.path()).message(),
              HasSubstr("model.patch_size is 32, but patch_size 16"));
  write("config.json", "not JSON");
  EXPECT_TRUE(valid_config(to_yaml(config)) == config) << "of a run, which has all settings";
}

TEST_F(ImageFolderTest, MustBeOfTheModel) {
  write("config.json", timm_json("resnet50"));
  const Config config = valid_config(with("name: resnet18"));
  EXPECT_THAT(check_huggingface_config(config.model, scratch_.path()).message(),
              HasSubstr("has architecture 'resnet50', but model.name is resnet18; set model.name: "
                        "resnet50"));
}

TEST_F(ImageFolderTest, HasItsNormalization) {
  const auto read = [&] { return *read_normalization(scratch_.path()); };
  EXPECT_FALSE(read());
  write("config.json", timm_json("resnet50", R"("mean": [0.1, 0.2, 0.3], "std": [1, 2, 3])"));
  EXPECT_EQ(read(), (Normalize{{0.1, 0.2, 0.3}, {1, 2, 3}})) << "of an older folder";
  write("config.json",
        timm_json("resnet50", R"("pretrained_cfg": {"mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]})"));
  EXPECT_EQ(read(), (Normalize{{0.5, 0.5, 0.5}, {1, 1, 1}}));
  write("preprocessor_config.json", R"({"image_mean": [0.4, 0.4, 0.4], "image_std": [1, 1, 1]})");
  EXPECT_EQ(read(), (Normalize{{0.4, 0.4, 0.4}, {1, 1, 1}}));
  write("preprocessor_config.json",
        R"({"do_normalize": false, "image_mean": [1], "image_std": [1]})");
  EXPECT_EQ(read(), (Normalize{{0}, {1}}));
  write("preprocessor_config.json", R"({"image_mean": [], "image_std": []})");
  EXPECT_FALSE(read());
  write("preprocessor_config.json", R"({"image_mean": null, "image_std": [1]})");
  EXPECT_FALSE(read());
}

// It is an error like that of config.json, but a run can do without the file.
TEST_F(ImageFolderTest, NamesTheFileThatIsMalformed) {
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {"{\n\"image_mean\": [0.5],\n", "line 2: not JSON: incomplete JSON; correct it, "},
           {"[]", "must be a JSON object"},
           {R"({"image_mean": ["a"], "image_std": [1]})", "'image_mean' must be numbers"},
           {R"({"image_mean": [0, 0, 0, 0, 0, 0, 0, 0, 0], "image_std": 1})",
            "'image_mean' has 9 numbers"}}) {
    write("preprocessor_config.json", text);
    const Status status = read_normalization(scratch_.path()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(),
                AllOf(StartsWith(scratch_ / "preprocessor_config.json: " + message),
                      HasSubstr("; or remove the file")));
  }
  write("config.json", "{\n\"architecture\" 3,\n\"a\": 1\n}\n");
  const Status status = check_huggingface_config({.arch = ResnetConfig{}}, scratch_.path());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("config.json: line 2: not JSON: "));
}

TEST(ImageModelConfigTest, ComparesNormalizations) {
  const Normalize half{{0.5}, {0.5}}, halves{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5001}};
  EXPECT_TRUE(is_same_normalization(&half, halves));
  EXPECT_FALSE(is_same_normalization(nullptr, halves));
  EXPECT_TRUE(is_same_normalization(nullptr, Normalize{{0, 0, 0}, {1, 1, 1}}));
  EXPECT_FALSE(is_same_normalization(&half, Normalize{{0.5, 0.5, 0.4}, {0.5}}));
}

// What was written is read as the same.
TEST_F(ImageFolderTest, HasTheNormalizationThatWasWritten) {
  const ImageFacts facts{.normalize = Normalize{{0.4}, {0.2}}};
  write("preprocessor_config.json", format_preprocessor_config(facts));
  EXPECT_TRUE(is_same_normalization(&*facts.normalize, **read_normalization(scratch_.path())));
}

// check_images.py loads such files with transformers.
TEST(ImageModelConfigTest, WritesHowImagesAreResizedAndCropped) {
  struct Preparation {
    std::vector<int64_t> resize, crop;
    std::string size;  // of preprocessor_config.json
    bool is_cropped;
    double crop_pct;
    std::string crop_mode;
  };
  for (const auto& [resize, crop, size, is_cropped, crop_pct, crop_mode] : std::vector<Preparation>{
           {{256}, {224}, R"({"shortest_edge":256})", true, 0.875, "center"},
           {{6, 8}, {}, R"({"height":6,"width":8})", false, 1, "squash"},
           {{256, 256}, {224}, R"({"height":256,"width":256})", true, 0.875, "squash"}}) {
    const ImageFacts facts{.image_size = 224, .resize = resize, .crop = crop};
    const auto object = boost::json::parse(format_preprocessor_config(facts)).as_object();
    EXPECT_EQ(boost::json::serialize(object.at("size")), size);
    EXPECT_EQ(object.at("do_resize"), true);
    EXPECT_EQ(object.at("do_center_crop"), is_cropped);
    EXPECT_EQ(object.contains("crop_size"), is_cropped);
    const auto timm = boost::json::parse(*format_timm_config(ResnetConfig{}, facts)).as_object();
    EXPECT_EQ(timm.at("pretrained_cfg").at("crop_pct"), crop_pct);
    EXPECT_EQ(timm.at("pretrained_cfg").at("crop_mode"), boost::json::value(crop_mode));
  }
  const auto none = boost::json::parse(format_preprocessor_config({.num_channels = 1}));
  EXPECT_EQ(none.at("do_resize"), false);
  EXPECT_EQ(none.at("do_convert_rgb"), false);
}

// timm divides by it, and rounds down. std::stod: Boost's parser rounds the last bit differently.
TEST(ImageModelConfigTest, HasACropOfTheExactSize) {
  const std::string key = "\"crop_pct\":";
  for (int64_t resize = 1; resize <= 512; ++resize) {
    const auto text = format_timm_config(ResnetConfig{}, {.resize = {resize}, .crop = {97}});
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const double ratio = std::stod(text->substr(text->find(key) + key.size()));
    EXPECT_EQ(static_cast<int64_t>(97 / ratio), resize);
  }
}

}  // namespace
}  // namespace stoker::config::test
