// Compares adapters of gpt2, llama, bert and vit with PEFT (make_peft.py): loads each folder by its
// config.json and adapter_config.json. STOKER_PARITY_PEFT is a folder with newly generated ones to compare with instead of
// the golden ones, which are few.
#include "shared/checkpoint/peft.h"
#include "shared/config/peft_config.h"
#include "shared/pretrained/merged_tensors.h"
#include "shared/pretrained/peft_settings.h"
#include "tests/parity/saved_model_parity.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

constexpr ParityCases kAdapters{"STOKER_PARITY_PEFT", STOKER_PARITY_GOLDEN "/peft"};

class PeftParityTest : public SavedModelParityTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open(folder()));
    const auto text = read_file(folder() + "/adapter/adapter_config.json", 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    auto lora = config::parse_peft_config(*text, "adapter_config.json");
    ASSERT_TRUE(lora.ok()) << lora.status().to_string();
    lora->path = folder() + "/adapter";
    config_.lora = *lora;
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder() { return kAdapters.folder() + "/" + GetParam(); }

  std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const override {
    return checkpoint::PeftNames(config_.name()).from_stoker(tensor);
  }

  checkpoint::BaseWeights base_weights() const {
    const auto& tensors = model_->adapter()->base;
    return {.path = folder(),
            .sha256 = model::base_digest(*model_),
            .tensors = {tensors.begin(), tensors.end()},
            .r = config_.lora->r,
            .lora_alpha = config_.lora->lora_alpha};
  }

  // The gradients of queries and keys are small differences of large numbers: PEFT computes them in
  // single precision with errors of up to 2e-5 of their largest element.
  double tolerance_of(const std::string& what) const override {
    return what.starts_with("gradient/") ? kGradientTolerance : tolerance();
  }
  at::Tensor logits_of(model::Model& model) const {
    model.eval();
    return outputs_of(model, "0").detach();
  }
};

TEST_P(PeftParityTest, MatchesLogitsGradientsAndTrainingOfPeft) {
  const model::NamedTensors parameters = model::named_tensors(*model_);
  for (const auto& item : model_->named_parameters())
    EXPECT_EQ(item.value().requires_grad(), !model_->adapter()->base.contains(item.key()));
  const std::string base = model::base_digest(*model_);
  expect_same_training(parameters);
  EXPECT_EQ(model::base_digest(*model_), base) << "the pretrained weights changed";
}

// What stokerctl export writes has the same adapter; check_peft.py loads those of generated cases with
// PEFT.
TEST_P(PeftParityTest, IsExportedAsTheSameAdapter) {
  const test::TemporaryDirectory scratch;
  const std::string exported = kAdapters.is_generated() ? folder() + "/exported" : scratch / "out";
  ASSERT_TRUE(default_file_system().make_directory(exported).ok());
  const auto file = save(scratch.path());
  ASSERT_NE(file, nullptr);
  const auto settings = pretrained::peft_settings(config_, base_weights(), file->tensors());
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  test::write_whole(exported + "/adapter_config.json", *settings);
  ASSERT_NO_FATAL_FAILURE(export_tensors(*file, exported + "/adapter_model.safetensors"));

  config::ModelConfig read = config_;
  auto lora = config::parse_peft_config(*settings, "adapter_config.json");
  ASSERT_TRUE(lora.ok()) << lora.status().to_string();
  lora->path = exported;
  read.lora = *lora;
  const auto loaded = load(read);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->adapter()->base, model_->adapter()->base);
  expect_same_tensors(loaded);
}

TEST_P(PeftParityTest, HasTheSameLogitsAfterMerging) {
  const test::TemporaryDirectory scratch;
  const auto merged =
      pretrained::MergedTensors::open(config_, base_weights(), save(scratch.path()));
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  const auto plain =
      model::make_model({.arch = config_.arch, .num_classes = config_.num_classes}, samples(), 0);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  const Status loaded =
      model::load_tensors(model::named_tensors(**plain), **merged, "the merged model");
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const at::Tensor logits = logits_of(*model_);
  EXPECT_LE((logits_of(**plain) - logits).abs().max().item<double>(),
            kTolerance * logits.abs().max().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Folders, PeftParityTest, testing::ValuesIn(kAdapters.names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
