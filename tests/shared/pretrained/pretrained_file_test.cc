// Files of image models: whose names they have, and what they lack without their folder.
#include "shared/pretrained/pretrained_file.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/image_model_names.h"
#include "shared/pretrained/state_dict_mapping.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::pretrained {
namespace {

using checkpoint::find_image_names;
using checkpoint::ImageLibrary;
using testing::HasSubstr;

class PretrainedFileTest : public testing::Test {
 protected:
  void write(const std::vector<std::string>& names) {
    std::vector<checkpoint::OwnedTensor> tensors;
    for (const std::string& name : names)
      tensors.push_back(checkpoint::make_tensor(name, DType::kF32, {2, 2}));
    std::filesystem::remove(scratch_ / kFile);
    ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), kFile,
                                              checkpoint::views_of(tensors), {})
                    .ok());
  }
  PretrainedTensors open(const std::string& path, const std::string& model,
                         const std::vector<config::KeyMapping>& key_mapping = {}) {
    auto opened = open_pretrained({.path = path, .key_mapping = key_mapping}, model);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? *std::move(opened) : PretrainedTensors();
  }

  static constexpr char kFile[] = "model.safetensors";
  const std::string attention_ = "vit.encoder.layer.0.attention.attention.";
  test::TemporaryDirectory scratch_;
};

TEST_F(PretrainedFileTest, HasTheNamesOfTimmOrTorchvision) {
  write({"cls_token", "head.weight"});
  EXPECT_EQ(open(scratch_ / kFile, "vit_b_16").maybe_names,
            find_image_names("vit_b_16", ImageLibrary::kTimm));
  EXPECT_EQ(open(scratch_ / kFile, "mlp").maybe_names, nullptr);
  EXPECT_EQ(open(scratch_ / kFile, "resnet50").maybe_names, nullptr) << "the same as torchvision's";
}

// A prefix of DistributedDataParallel or Lightning.
TEST_F(PretrainedFileTest, HasTheNamesAfterKeyMapping) {
  const std::vector<config::KeyMapping> rules{{"module.*", "*"}};
  write({"module.cls_token", "module.head.weight"});
  EXPECT_EQ(open(scratch_ / kFile, "vit", rules).maybe_names,
            find_image_names("vit", ImageLibrary::kTimm));
  write({"module.class_token", "module.encoder.layers.encoder_layer_0.mlp.linear_1.weight"});
  EXPECT_EQ(open(scratch_ / kFile, "vit", rules).maybe_names,
            find_image_names("vit", ImageLibrary::kTorchvisionBefore013));
}

// Without the rule, nothing matches.
TEST_F(PretrainedFileTest, SuggestsTheKeyMappingOfAPrefix) {
  struct Case {
    std::string model;
    std::vector<std::string> in_file, in_model;
    std::string prefix;
  };
  for (const Case& prefixed : std::vector<Case>{
           {"resnet18",
            {"model.conv1.weight", "model.bn1.weight", "epoch"},
            {"conv1.weight", "bn1.weight"},
            "model."},
           {"vit",
            {"net.model.cls_token", "net.model.blocks.3.norm1.bias"},
            {"class_token", "encoder.layers.encoder_layer_3.ln_1.bias"},
            "net.model."},
           {"vit",
            {"module.class_token", "module.encoder.layers.encoder_layer_0.mlp.linear_1.weight"},
            {"class_token", "encoder.layers.encoder_layer_0.mlp.0.weight"},
            "module."}}) {
    write(prefixed.in_file);
    std::vector<TensorSpec> needed;
    for (const std::string& name : prefixed.in_model) needed.push_back({name, DType::kF32, {2, 2}});
    const auto map = [&](const std::vector<config::KeyMapping>& rules) {
      const PretrainedTensors opened = open(scratch_ / kFile, prefixed.model, rules);
      return map_state_dict(needed, *opened.file,
                            {.path = scratch_ / kFile, .key_mapping = rules, .exclude = {"epoch*"}},
                            opened.maybe_names);
    };
    EXPECT_EQ(map({}).status().message(),
              "the file does not fit the model: the names in the file have the prefix '" +
                  prefixed.prefix + "'; set model.pretrained.key_mapping: [{from: \"" +
                  prefixed.prefix + "*\", to: \"*\"}]");
    EXPECT_EQ(map({{prefixed.prefix + "*", "*"}}).loads.size(), 2);
  }
}

TEST_F(PretrainedFileTest, IsAFolderForTransformers) {
  write({"vit.embeddings.cls_token", attention_ + "query.weight", attention_ + "key.weight",
         attention_ + "value.weight"});
  const auto alone = open_pretrained({.path = scratch_ / kFile}, "vit");
  EXPECT_EQ(alone.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(alone.status().message(),
              HasSubstr("has the names of transformers, whose settings are in config.json; set "
                        "model.pretrained.path to the folder with both"));
  test::write_whole(scratch_ / "config.json", "{}");
  const PretrainedTensors folder = open(scratch_.path(), "vit");
  EXPECT_EQ(folder.maybe_names, find_image_names("vit", ImageLibrary::kTransformers));
  const TensorSpec* const fused = folder.file->find(attention_ + "{query,key,value}.weight");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->shape, (std::vector<int64_t>{6, 2}));
}

}  // namespace
}  // namespace stoker::pretrained
