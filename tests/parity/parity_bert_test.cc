// Compares bert with transformers (make_bert.py): loads each folder by its config.json.
// STOKER_PARITY_BERT is a folder with newly generated ones to compare with instead of the golden ones,
// which are few and in single precision. STOKER_PARITY_EMBEDDINGS is a folder of a published model with
// what transformers computes for texts (check_minilm.py); there are no golden ones.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>

#include "shared/checkpoint/export_tensors.h"
#include "shared/model/load_weights.h"
#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

constexpr ParityCases kBertFolders{"STOKER_PARITY_BERT", STOKER_PARITY_GOLDEN "/bert"};
constexpr double kBertDoubleTolerance = 1e-12;
constexpr int64_t kSepToken = 3;  // of make_bert.py

class BertParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open(folder_of_case()));
    is_double_ = expected_->find("logits")->dtype == DType::kF64;
    auto& bert = std::get<config::BertConfig>(config_.arch);
    bert.sep_token = kSepToken;
    const bool is_per_token = expected_->find("labels0")->shape.size() == 2;
    if (is_per_token) bert.pooling = config::BertPooling::kNone;
    config_.num_classes = expected_->find("logits")->shape.back();
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder_of_case() { return kBertFolders.folder() + "/" + GetParam(); }
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return checkpoint::HuggingFaceNames::find("bert")->from_stoker(tensor);
  }
  double tolerance() const override { return is_double_ ? kBertDoubleTolerance : kTolerance; }
  // The softmax does not depend on the biases of the keys, whose gradients are only rounding.
  std::string scale_of(const std::string& what) const override {
    std::string scale = what;
    if (what.starts_with("gradient/") && what.ends_with("key.bias"))
      scale.replace(scale.size() - 8, 8, "value.bias");
    return scale;
  }
  StepOutput run_step(int64_t step) const override {
    const std::string batch = std::to_string(step % 2);
    const at::Tensor tokens = expected("tokens" + batch), labels = expected("labels" + batch);
    const bool is_padded = expected_->find("lengths" + batch) != nullptr;
    const at::Tensor logits = is_padded
                                  ? model_->forward_padded(tokens, expected("lengths" + batch))
                                  : model_->forward(tokens);
    return {logits, at::cross_entropy_loss(logits.flatten(0, -2), labels.flatten())};
  }

  model::ModelPtr load(const config::ModelConfig& config) const {
    auto made = model::make_model(
        config, {{"tokens", DType::kI32, {expected_->find("tokens0")->shape[1]}}}, 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return nullptr;
    if (is_double_) (*made)->to(at::kDouble);
    pretrained::StateDictMapping mapping;
    const Status loaded = model::load_pretrained(**made, config, mapping);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    return loaded.ok() ? *made : nullptr;
  }

  bool is_double_ = false;
};

TEST_P(BertParityTest, MatchesLogitsGradientsAndTrainingOfTransformers) {
  model::NamedTensors parameters;
  for (const auto& item : model_->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  expect_same_training(parameters);
}

// check_bert.py loads those of generated cases with transformers.
TEST_P(BertParityTest, IsExportedAsTheSameModel) {
  if (is_double_) GTEST_SKIP() << "exported in single precision";
  const test::TemporaryDirectory scratch;
  const std::string folder =
      kBertFolders.is_generated() ? folder_of_case() + "/exported" : scratch / "out";
  ASSERT_TRUE(default_file_system().make_directory(folder).ok());
  const auto json =
      config::format_huggingface_config(config_.arch, {.num_labels = *config_.num_classes});
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  test::write_whole(folder + "/config.json", *json);
  const auto file = save(scratch.path());
  ASSERT_NE(file, nullptr);
  const std::vector<checkpoint::ExportPart> parts{
      {.name = "model", .file = file.get(), .rename = [this](std::string_view name) {
         return name_of(name);
       }}};
  auto out = checkpoint::NewFile::create(default_file_system(), folder + "/model.safetensors");
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  ASSERT_TRUE(checkpoint::export_safetensors(parts, {{"format", "pt"}}, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  config::ModelConfig exported = config_;
  exported.pretrained->path = folder;
  const auto loaded = load(exported);
  ASSERT_NE(loaded, nullptr);
  for (const auto& [name, tensor] : model::named_tensors(*model_))
    EXPECT_TRUE(at::equal(tensor, loaded->named_parameters()[name])) << name;
}

INSTANTIATE_TEST_SUITE_P(Folders, BertParityTest, testing::ValuesIn(kBertFolders.names()),
                         [](const auto& test) { return test.param; });

// The states of the last block, or their mean, are the outputs of an output layer that does not change
// them.
class EmbeddingParityTest : public SavedModelParityTest {
 protected:
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(std::string_view) const override {
    return std::nullopt;
  }
  at::Tensor outputs(config::BertPooling pooling) {
    auto& bert = std::get<config::BertConfig>(config_.arch);
    bert.pooling = pooling;
    config_.num_classes = bert.embed_dim;
    config_.pretrained->exclude = {"fc.*", "pooler.*"};
    const at::Tensor tokens = expected("tokens");
    const auto made = model::make_model(config_, {{"tokens", DType::kI32, {tokens.size(1)}}}, 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return at::empty({0});
    pretrained::StateDictMapping mapping;
    const Status loaded = model::load_pretrained(**made, config_, mapping);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    const at::NoGradGuard no_grad;
    (*made)->named_parameters()["fc.weight"].copy_(at::eye(bert.embed_dim));
    (*made)->named_parameters()["fc.bias"].zero_();
    (*made)->eval();
    return (*made)->forward_padded(tokens, expected("lengths"));
  }
};

TEST_P(EmbeddingParityTest, MatchesStatesAndEmbeddingsOfTransformers) {
  ASSERT_NO_FATAL_FAILURE(open(GetParam()));
  const at::Tensor states = outputs(config::BertPooling::kNone), lengths = expected("lengths");
  const at::Tensor valid = at::arange(states.size(1)).lt(lengths.unsqueeze(1)).unsqueeze(2);
  expect_close("states", states * valid);
  expect_close("embeddings", outputs(config::BertPooling::kMean));
}

std::vector<std::string> embedding_folders() {
  const char* const folder = std::getenv("STOKER_PARITY_EMBEDDINGS");
  return folder == nullptr ? std::vector<std::string>() : std::vector<std::string>{folder};
}
INSTANTIATE_TEST_SUITE_P(Folders, EmbeddingParityTest, testing::ValuesIn(embedding_folders()),
                         [](const auto&) { return "model"; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmbeddingParityTest);

}  // namespace
}  // namespace stoker::parity
