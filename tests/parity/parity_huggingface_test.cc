// Compares gpt2 and llama with transformers (make_huggingface.py): loads each folder by its config.json.
// STOKER_PARITY_HUGGINGFACE is a folder with newly generated ones to compare with instead of the golden
// ones, which are few and in single precision.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include "shared/checkpoint/export_tensors.h"
#include "shared/model/load_weights.h"
#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

constexpr ParityCases kFolders{"STOKER_PARITY_HUGGINGFACE", STOKER_PARITY_GOLDEN "/huggingface"};
constexpr double kDoubleTolerance = 1e-12;

class HuggingFaceParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open(folder_of_case()));
    is_double_ = expected_->find("logits")->dtype == DType::kF64;
    names_ = checkpoint::HuggingFaceNames::find(config_.name());
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder_of_case() { return kFolders.folder() + "/" + GetParam(); }
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return names_->from_stoker(tensor);
  }
  double tolerance() const override { return is_double_ ? kDoubleTolerance : kTolerance; }

  model::ModelPtr load(const config::ModelConfig& config) const {
    auto made = model::make_model(config, samples(), 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return nullptr;
    if (is_double_) (*made)->to(at::kDouble);
    pretrained::StateDictMapping mapping;
    const Status loaded = model::load_pretrained(**made, config, mapping);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    return loaded.ok() ? *made : nullptr;
  }

  // As stokerctl does, from a file with the names of a checkpoint.
  void export_to(const std::string& folder) const {
    const test::TemporaryDirectory scratch;
    const auto file = save(scratch.path());
    ASSERT_NE(file, nullptr);
    const std::vector<checkpoint::ExportPart> parts{
        {.name = "model", .file = file.get(), .rename = [this](std::string_view name) {
           return names_->from_stoker(name);
         }}};
    auto out = checkpoint::NewFile::create(default_file_system(), folder + "/model.safetensors");
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    ASSERT_TRUE(checkpoint::export_safetensors(parts, {{"format", "pt"}}, *out, {}).ok());
    ASSERT_TRUE(out->commit().ok());
  }

  bool is_double_ = false;
  const checkpoint::HuggingFaceNames* names_ = nullptr;
};

TEST_P(HuggingFaceParityTest, MatchesLogitsGradientsAndTrainingOfTransformers) {
  model::NamedTensors parameters;
  for (const auto& item : model_->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  expect_same_training(parameters);
}

TEST_P(HuggingFaceParityTest, MatchesLogitsOfPaddedAndPackedSequences) {
  const at::NoGradGuard no_grad;
  model_->eval();
  const at::Tensor tokens = expected("ragged.tokens");
  const at::Tensor valid = expected("ragged.valid").unsqueeze(2);
  const at::Tensor logits = model_->forward_packed(tokens, expected("ragged.position_ids"));
  expect_close("ragged.logits", logits * valid);
  // Padding at the end needs no mask.
  at::Tensor padded = logits.clone();
  padded[1] = model_->forward(tokens.narrow(0, 1, 1))[0];
  expect_close("ragged.logits", padded * valid);
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
  export_to(folder);
  config::ModelConfig exported{.arch = config_.arch,
                               .pretrained = config::PretrainedConfig{.path = folder}};
  const auto loaded = load(exported);
  ASSERT_NE(loaded, nullptr);
  for (const auto& [name, tensor] : model::named_tensors(*model_))
    EXPECT_TRUE(at::equal(tensor, loaded->named_parameters()[name])) << name;
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingFaceParityTest, testing::ValuesIn(kFolders.names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
