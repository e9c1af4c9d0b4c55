// Compares bert with transformers (make_bert.py): loads each folder by its config.json.
// STOKER_PARITY_BERT is a folder with newly generated ones to compare with instead of the golden ones,
// which are few and in single precision. STOKER_PARITY_EMBEDDINGS is a folder of a published model with
// what transformers computes for texts (check_minilm.py); there are no golden ones.
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>

#include "tests/parity/generated.h"
#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

constexpr ParityCases kBertFolders{"STOKER_PARITY_BERT", STOKER_PARITY_GOLDEN "/bert"};

class BertParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open(folder_of_case()));
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder_of_case() { return kBertFolders.folder() + "/" + GetParam(); }
  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return checkpoint::HuggingFaceNames::find("bert")->from_stoker(tensor);
  }
};

TEST_P(BertParityTest, MatchesLogitsGradientsAndTrainingOfTransformers) {
  expect_same_training(parameters());
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
  ASSERT_NO_FATAL_FAILURE(export_tensors(*file, folder + "/model.safetensors"));
  config::ModelConfig exported = config_;
  exported.pretrained->path = folder;
  expect_same_tensors(load(exported));
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
    const model::ModelPtr loaded = load(config_);
    if (loaded == nullptr) return at::empty({0});
    const at::NoGradGuard no_grad;
    loaded->named_parameters()["fc.weight"].copy_(at::eye(bert.embed_dim));
    loaded->named_parameters()["fc.bias"].zero_();
    loaded->eval();
    return loaded->forward_padded(expected("tokens"), expected("lengths"));
  }
  std::vector<TensorSpec> samples() const override {
    return {{"tokens", DType::kI32, {expected_->find("tokens")->shape[1]}}};
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
  const char* const folder = generated("STOKER_PARITY_EMBEDDINGS");
  return folder == nullptr ? std::vector<std::string>() : std::vector<std::string>{folder};
}
INSTANTIATE_TEST_SUITE_P(Folders, EmbeddingParityTest, testing::ValuesIn(embedding_folders()),
                         [](const auto&) { return "model"; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmbeddingParityTest);

}  // namespace
}  // namespace stoker::parity
