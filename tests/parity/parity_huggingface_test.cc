// Compares gpt2 and llama with transformers (make_huggingface.py): loads each folder by its config.json.
// STOKER_PARITY_HUGGINGFACE is a folder with newly generated ones to compare with instead of the golden
// ones, which are few and in single precision.
#include <ATen/core/grad_mode.h>

#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

constexpr ParityCases kFolders{"STOKER_PARITY_HUGGINGFACE", STOKER_PARITY_GOLDEN "/huggingface"};

class HuggingFaceParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open(folder_of_case()));
    names_ = checkpoint::HuggingFaceNames::find(config_.name());
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder_of_case() { return kFolders.folder() + "/" + GetParam(); }
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return names_->from_stoker(tensor);
  }

  // Sums with cancellation, whose last bits depend on the processor. Double precision has the tight bound.
  double tolerance_of(const std::string& what) const override {
    return what.starts_with("gradient") && !is_double_ ? kGradientTolerance : tolerance();
  }

  const checkpoint::HuggingFaceNames* names_ = nullptr;
};

// Every second step is one of padded and packed rows.
TEST_P(HuggingFaceParityTest, MatchesLogitsGradientsAndTrainingOfTransformers) {
  ASSERT_TRUE(has("position_ids1"));
  expect_same_training(parameters());
}

TEST_P(HuggingFaceParityTest, MatchesLogitsAndGradientsOfPaddedAndPackedSequences) {
  model_->train();
  const at::Tensor valid = expected("valid1").unsqueeze(2);
  const auto [logits, loss] = run_step(1);
  expect_close("logits1", logits.detach() * valid);
  expect_same_gradients("gradient1/", loss, parameters());
  // Padding at the end needs no mask.
  const at::NoGradGuard no_grad;
  at::Tensor padded = logits.detach().clone();
  padded[1] = model_->forward(expected("tokens1").narrow(0, 1, 1))[0];
  expect_close("logits1", padded * valid);
}

// The folder that stokerctl export writes has the same model;
// check_huggingface.py loads those of generated cases with transformers.
TEST_P(HuggingFaceParityTest, IsExportedAsTheSameModel) {
  if (is_double_) GTEST_SKIP() << "exported in single precision";
  const test::TemporaryDirectory scratch;
  const std::string folder =
      kFolders.is_generated() ? folder_of_case() + "/exported" : scratch / "out";
  ASSERT_TRUE(default_file_system().make_directory(folder).ok());
  const auto json = config::format_huggingface_config(config_.arch);
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  test::write_whole(folder + "/config.json", *json);
  const auto file = save(scratch.path());
  ASSERT_NE(file, nullptr);
  ASSERT_NO_FATAL_FAILURE(export_tensors(*file, folder + "/model.safetensors"));
  config::ModelConfig exported{.arch = config_.arch,
                               .pretrained = config::PretrainedConfig{.path = folder}};
  expect_same_tensors(load(exported));
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingFaceParityTest, testing::ValuesIn(kFolders.names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
