// Compares image models with transformers, timm and torchvision (make_images.py): loads what each of them
// saved, trains vit of transformers, and exports all for all three. STOKER_PARITY_IMAGES is a folder with
// newly generated ones to compare with instead of the golden ones, which are one small vit per library.
#include <ATen/core/grad_mode.h>

#include "shared/checkpoint/image_model_names.h"
#include "shared/config/image_model_config.h"
#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

using checkpoint::ImageLibrary;

constexpr ParityCases kImageFolders{"STOKER_PARITY_IMAGES", STOKER_PARITY_GOLDEN "/images"};

// As small_vit() of make_images.py.
config::VitConfig small_vit() {
  config::VitConfig vit;
  vit.patch_size = 4;
  vit.num_layers = 2;
  vit.num_heads = 2;
  vit.hidden_dim = 8;
  vit.mlp_dim = 12;
  return vit;
}

// Of a file without settings, by the name of its folder: "resnet18_torchvision_1".
config::ModelVariant torchvision_model(const std::string& name) {
  if (name.starts_with("inceptionv3")) return config::InceptionV3Config();
  if (name.starts_with("resnet18")) return config::ResnetConfig{.depth = 18};
  return small_vit();
}

class ImageParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    const std::string folder = folder_of_case();
    ASSERT_NO_FATAL_FAILURE(open_expected(folder));
    if (GetParam().find("torchvision") != std::string::npos) {
      config_.arch = torchvision_model(GetParam());
      config_.pretrained = config::PretrainedConfig{.path = folder + "/model.pt"};
    } else {
      ASSERT_NO_FATAL_FAILURE(read_config(folder));
    }
    config_.num_classes = expected_->find("logits")->shape.back();
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder_of_case() { return kImageFolders.folder() + "/" + GetParam(); }
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return names_ == nullptr ? checkpoint::HuggingFaceNames::Name{std::string(tensor)}
                             : names_->from_stoker(tensor);
  }
  // transformers has three matrices, and biases, in place of one (checkpoint::SplitQkv).
  model::NamedTensors as_stored(model::NamedTensors tensors) const override {
    constexpr std::string_view kFused = "in_proj_";
    model::NamedTensors stored;
    for (auto& [name, tensor] : tensors) {
      const size_t at = name.rfind(kFused);
      if (at == std::string::npos) {
        stored.emplace_back(name, tensor);
        continue;
      }
      const std::vector<at::Tensor> parts = tensor.chunk(3);
      for (const auto& [i, part] : {std::pair(size_t{0}, "query."), {1, "key."}, {2, "value."}})
        stored.emplace_back(std::string(name).replace(at, kFused.size(), part), parts[i]);
    }
    return stored;
  }
  // As for PeftParityTest: with a width of 4, the gradients of queries in single precision differ from
  // those of transformers by 3e-5 of their largest element; in double precision they agree.
  double tolerance_of(const std::string& what) const override {
    const bool is_of_scores =
        what.starts_with("gradient/") &&
        (what.find(".query.") != std::string::npos || what.find(".key.") != std::string::npos);
    return is_of_scores && !is_double_ ? kGradientTolerance : tolerance();
  }
  at::Tensor logits_of(model::Model& model) const {
    const at::NoGradGuard no_grad;
    model.eval();
    return model.forward(expected("images0"));
  }

  // check_images.py prepares images in the same ways.
  config::ImageFacts facts_of(int64_t channels, int64_t side) const {
    config::ImageFacts facts{.num_classes = *config_.num_classes,
                             .num_channels = channels,
                             .image_size = side,
                             .normalize = config::Normalize{{0.5}, {0.25}}};
    if (channels == 3)
      facts.resize = {side + 4}, facts.crop = {side};
    else
      facts.resize = {side, side};
    return facts;
  }
  // As stokerctl export does, and loads the result.
  void export_to(ImageLibrary library, const std::string& folder,
                 const config::ModelVariant& arch) {
    const test::TemporaryDirectory scratch;
    ASSERT_TRUE(make_directories(default_file_system(), folder).ok());
    const std::vector<int64_t>& shape = expected_->find("images0")->shape;
    const config::ImageFacts facts = facts_of(shape[1], shape[2]);
    const auto json =
        library == ImageLibrary::kTimm
            ? config::format_timm_config(arch, facts)
            : config::format_huggingface_config(
                  arch, {.num_labels = *config_.num_classes, .num_channels = shape[1]});
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    test::write_whole(folder + "/config.json", *json);
    if (library == ImageLibrary::kTransformers)
      test::write_whole(folder + "/preprocessor_config.json",
                        config::format_preprocessor_config(facts));
    names_ = checkpoint::find_image_names(config_.name(), library);
    std::unique_ptr<checkpoint::TensorRangeSource> file = save(scratch.path());
    ASSERT_NE(file, nullptr);
    const bool is_split = library == ImageLibrary::kTransformers;
    if (is_split) file = std::make_unique<checkpoint::SplitQkv>(std::move(file));
    ASSERT_NO_FATAL_FAILURE(export_tensors(*file, folder + "/model.safetensors"));
    config::ModelConfig exported = config_;
    exported.arch = arch;
    exported.pretrained->path = folder;
    const model::ModelPtr again = load(exported);
    ASSERT_NO_FATAL_FAILURE(expect_same_tensors(again));
    if (arch == config_.arch) {
      EXPECT_TRUE(at::equal(logits_of(*again), logits_of(*model_)));
    }
  }

  const checkpoint::HuggingFaceNames* names_ = nullptr;
};

TEST_P(ImageParityTest, MatchesLogits) { expect_close("logits", logits_of(*model_)); }

TEST_P(ImageParityTest, MatchesGradientsAndTrainingOfTransformers) {
  if (!has("losses")) GTEST_SKIP() << "only vit of transformers was trained";
  names_ = checkpoint::find_image_names(config_.name(), ImageLibrary::kTransformers);
  ASSERT_NE(names_, nullptr);
  expect_same_training(parameters());
}

// check_images.py loads those of generated cases with the libraries.
TEST_P(ImageParityTest, IsExportedAsTheSameModel) {
  if (is_double_) GTEST_SKIP() << "exported in single precision";
  const test::TemporaryDirectory scratch;
  const std::string folder =
      kImageFolders.is_generated() ? folder_of_case() + "/exported" : scratch / "out";
  config::ModelVariant arch = config_.arch;
  auto* const vit = std::get_if<config::VitConfig>(&arch);
  if (vit != nullptr) vit->image_size = expected_->find("images0")->shape[2];
  if (!std::holds_alternative<config::InceptionV3Config>(arch)) {
    ASSERT_NO_FATAL_FAILURE(export_to(ImageLibrary::kTransformers, folder + "/transformers", arch));
  }
  if (vit == nullptr || vit->layer_norm_eps == 1e-6) {
    ASSERT_NO_FATAL_FAILURE(export_to(ImageLibrary::kTimm, folder + "/timm", arch));
  }
  if (kImageFolders.is_generated() && vit != nullptr) {
    names_ = nullptr;  // torchvision's, which timm has, too
    ASSERT_NE(save(folder), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, ImageParityTest, testing::ValuesIn(kImageFolders.names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
