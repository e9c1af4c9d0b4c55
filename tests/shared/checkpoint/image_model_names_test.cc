// The names of image models in other libraries, and queries, keys and values in one tensor or three.
#include "shared/checkpoint/image_model_names.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct NamePair {
  std::string ours, theirs;
};
void expect_both_ways(const HuggingFaceNames* names, const std::vector<NamePair>& pairs) {
  ASSERT_NE(names, nullptr);
  for (const auto& [ours, theirs] : pairs) {
    const auto from = names->from_stoker(ours), to = names->to_stoker(theirs);
    ASSERT_TRUE(from && to) << ours;
    EXPECT_EQ(from->name, theirs);
    EXPECT_EQ(to->name, ours);
    EXPECT_FALSE(from->is_transposed || to->is_transposed) << ours;
  }
}

TEST(ImageModelNamesTest, MapsVitOfTimmBothWays) {
  expect_both_ways(
      find_image_names("vit_b_16", ImageLibrary::kTimm),
      {{"class_token", "cls_token"},
       {"encoder.pos_embedding", "pos_embed"},
       {"conv_proj.weight", "patch_embed.proj.weight"},
       {"encoder.layers.encoder_layer_11.ln_1.bias", "blocks.11.norm1.bias"},
       {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", "blocks.0.attn.qkv.weight"},
       {"encoder.layers.encoder_layer_0.self_attention.in_proj_bias", "blocks.0.attn.qkv.bias"},
       {"encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
        "blocks.0.attn.proj.weight"},
       {"encoder.layers.encoder_layer_0.ln_2.weight", "blocks.0.norm2.weight"},
       {"encoder.layers.encoder_layer_0.mlp.0.weight", "blocks.0.mlp.fc1.weight"},
       {"encoder.layers.encoder_layer_0.mlp.3.bias", "blocks.0.mlp.fc2.bias"},
       {"encoder.ln.weight", "norm.weight"},
       {"heads.head.weight", "head.weight"}});
}

TEST(ImageModelNamesTest, MapsVitOfTransformersBothWays) {
  const auto* const names = find_image_names("vit", ImageLibrary::kTransformers);
  const std::string block = "encoder.layers.encoder_layer_3.", layer = "vit.encoder.layer.3.";
  expect_both_ways(names,
                   {{"class_token", "vit.embeddings.cls_token"},
                    {"encoder.pos_embedding", "vit.embeddings.position_embeddings"},
                    {"conv_proj.bias", "vit.embeddings.patch_embeddings.projection.bias"},
                    {block + "ln_1.weight", layer + "layernorm_before.weight"},
                    {block + "self_attention.in_proj_weight",
                     layer + "attention.attention.{query,key,value}.weight"},
                    {block + "self_attention.in_proj_bias",
                     layer + "attention.attention.{query,key,value}.bias"},
                    {block + "self_attention.key.weight", layer + "attention.attention.key.weight"},
                    {block + "self_attention.out_proj.bias", layer + "attention.output.dense.bias"},
                    {block + "ln_2.weight", layer + "layernorm_after.weight"},
                    {block + "mlp.0.weight", layer + "intermediate.dense.weight"},
                    {block + "mlp.3.weight", layer + "output.dense.weight"},
                    {"encoder.ln.bias", "vit.layernorm.bias"},
                    {"heads.head.weight", "classifier.weight"}});
  EXPECT_EQ(names->to_stoker("embeddings.cls_token")->name, "class_token") << "of a ViTModel";
  EXPECT_TRUE(names->is_ignored("vit.pooler.dense.weight"));
  EXPECT_TRUE(names->is_ignored("vit.embeddings.mask_token"));
  EXPECT_FALSE(names->is_ignored("classifier.weight"));
}

TEST(ImageModelNamesTest, MapsResnetOfTransformersBothWays) {
  expect_both_ways(
      find_image_names("resnet50", ImageLibrary::kTransformers),
      {{"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
       {"bn1.running_mean", "resnet.embedder.embedder.normalization.running_mean"},
       {"layer1.0.conv1.weight", "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"},
       {"layer4.2.conv3.weight", "resnet.encoder.stages.3.layers.2.layer.2.convolution.weight"},
       {"layer3.22.bn2.num_batches_tracked",
        "resnet.encoder.stages.2.layers.22.layer.1.normalization.num_batches_tracked"},
       {"layer2.0.downsample.0.weight",
        "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"},
       {"layer2.0.downsample.1.running_var",
        "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_var"},
       {"fc.weight", "classifier.1.weight"}});
}

TEST(ImageModelNamesTest, HasNoTableForNamesOfTorchvision) {
  EXPECT_EQ(find_image_names("vit", ImageLibrary::kTorchvision), nullptr);
  EXPECT_EQ(find_image_names("resnet50", ImageLibrary::kTimm), nullptr) << "the same names";
  EXPECT_EQ(find_image_names("inception_v3", ImageLibrary::kTimm), nullptr);
  EXPECT_EQ(find_image_names("vgg11", ImageLibrary::kTransformers), nullptr);
}

TEST(ImageModelNamesTest, DetectsTheLibrary) {
  EXPECT_EQ(detect_image_library({"conv1.weight", "fc.bias"}), ImageLibrary::kTorchvision);
  EXPECT_EQ(
      detect_image_library({"class_token", "encoder.layers.encoder_layer_0.mlp.linear_1.weight"}),
      ImageLibrary::kTorchvisionBefore013);
  EXPECT_EQ(detect_image_library({"encoder.layers.encoder_layer_0.mlp.linear_1.weight",
                                  "decoder.pos_embed", "teacher.cls_token"}),
            ImageLibrary::kTorchvisionBefore013)
      << "with another model";
  EXPECT_EQ(detect_image_library({std::string("cls_token")}), ImageLibrary::kTimm);
  EXPECT_EQ(detect_image_library({std::string("model.cls_token")}), ImageLibrary::kTimm);
  EXPECT_EQ(detect_image_library({std::string("my_cls_token")}), ImageLibrary::kTorchvision);
  EXPECT_EQ(detect_image_library({std::string("vit.embeddings.cls_token")}),
            ImageLibrary::kTransformers);
  EXPECT_EQ(detect_image_library({std::string("resnet.embedder.embedder.convolution.weight")}),
            ImageLibrary::kTransformers);
}

class QkvTest : public testing::Test {
 protected:
  std::unique_ptr<SafetensorsFile> open(const std::vector<OwnedTensor>& tensors) {
    EXPECT_TRUE(write_safetensors(default_file_system(), scratch_.path(), "file.safetensors",
                                  views_of(tensors), {})
                    .ok());
    auto file = SafetensorsFile::open(scratch_ / "file.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return *std::move(file);
  }
  static std::vector<std::string> specs_of(const TensorSource& file) {
    std::vector<std::string> specs;
    for (const TensorSpec& spec : file.tensors()) specs.push_back(to_string(spec));
    return specs;
  }
  static std::vector<std::byte> bytes_of(const TensorSource& file, const std::string& name) {
    std::vector<std::byte> bytes(file.find(name)->bytes());
    EXPECT_TRUE(file.read(name, bytes).ok());
    return bytes;
  }

  test::TemporaryDirectory scratch_;
};

TEST_F(QkvTest, AreOneTensorInOrderOfQueryKeyValue) {
  const std::string prefix = "encoder.layer.0.attention.attention.";
  const auto query = make_tensor(prefix + "query.weight", DType::kF32, {2, 3}, 1),
             key = make_tensor(prefix + "key.weight", DType::kF32, {2, 3}, 2),
             value = make_tensor(prefix + "value.weight", DType::kF32, {2, 3}, 3);
  const FusedQkv fused(open({value, key, query, make_tensor("norm", DType::kF32, {1}, 4)}));
  const std::string name = prefix + "{query,key,value}.weight";
  EXPECT_THAT(specs_of(fused), ElementsAre(name + " F32 [6, 3]", "norm F32 [1]"));
  std::vector<std::byte> expected = query.bytes;
  for (const auto* const more : {&key, &value})
    expected.insert(expected.end(), more->bytes.begin(), more->bytes.end());
  EXPECT_EQ(bytes_of(fused, name), expected);
  EXPECT_EQ(bytes_of(fused, "norm"), make_tensor("norm", DType::kF32, {1}, 4).bytes);
  std::vector<std::byte> few(8);
  EXPECT_EQ(fused.read(name, few).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fused.read("gone", few).code(), StatusCode::kNotFound);
}

TEST_F(QkvTest, StayThreeTensorsIfOneIsMissingOrDiffers) {
  const std::string prefix = "encoder.layer.0.attention.attention.";
  EXPECT_EQ(FusedQkv(open({make_tensor(prefix + "query.weight", DType::kF32, {2, 3}),
                           make_tensor(prefix + "key.weight", DType::kF32, {2, 3}),
                           make_tensor(prefix + "value.weight", DType::kF32, {2, 2})}))
                .tensors()
                .size(),
            3u);
}

// A file can have any number of rows without columns.
TEST_F(QkvTest, StayThreeTensorsIfOneWouldHaveTooManyRows) {
  const std::string prefix = "encoder.layer.0.attention.attention.";
  std::vector<OwnedTensor> tensors;
  for (const char* const part : {"query", "key", "value"})
    tensors.push_back(make_tensor(prefix + part + ".weight", DType::kF32, {int64_t{1} << 62, 0}));
  EXPECT_EQ(FusedQkv(open(tensors)).tensors().size(), 3u);
}

TEST_F(QkvTest, AreSplitWithoutReadingTheOthers) {
  const std::string block = "encoder.layers.encoder_layer_0.self_attention.";
  const auto fused = make_tensor(block + "in_proj_weight", DType::kF32, {6, 2}, 1);
  const SplitQkv split(open({fused, make_tensor(block + "out_proj.bias", DType::kF32, {2}, 2)}));
  EXPECT_THAT(specs_of(split),
              ElementsAre(block + "query.weight F32 [2, 2]", block + "key.weight F32 [2, 2]",
                          block + "value.weight F32 [2, 2]", block + "out_proj.bias F32 [2]"));
  std::vector<std::byte> joined;
  for (const char* const part : {"query", "key", "value"}) {
    const auto bytes = bytes_of(split, block + part + ".weight");
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(joined, fused.bytes);
  std::vector<std::byte> last(4);
  ASSERT_TRUE(split.read_part(block + "key.weight", 12, last).ok());
  EXPECT_EQ(std::memcmp(last.data(), &fused.bytes[16 + 12], last.size()), 0);
  EXPECT_THAT(split.read_part(block + "key.weight", 13, last).message(),
              HasSubstr("outside of the tensor"));
}

}  // namespace
}  // namespace stoker::checkpoint
