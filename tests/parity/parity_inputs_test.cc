// Compares the training inputs with those of torchvision for the same images, mixing ratios and box
// centers (make_inputs.py).
#include <ATen/ops/abs.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include "shared/task/mixup_cutmix.h"
#include "shared/task/preprocess_input.h"
#include "shared/task/task.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

constexpr int64_t kInputClasses = 5;
const config::Normalize kNormalize{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
const task::Normalization kNormalization{.mean = kNormalize.mean, .std = kNormalize.std};

// Returns its input, so that the test sees what the task passes to a model.
class Mirror : public model::Model {
 public:
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

class InputParityTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file =
        checkpoint::SafetensorsFile::open(STOKER_PARITY_GOLDEN "/inputs/inputs.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
  }
  at::Tensor read(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return *tensor;
  }
  void expect_close(const at::Tensor& actual, const std::string& name) const {
    const at::Tensor expected = read(name);
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-6) << name;
  }

  const std::vector<TensorSpec> sample_{{"input", DType::kU8, {3, 8, 10}},
                                        {"label", DType::kI64, {}}};
  std::unique_ptr<checkpoint::SafetensorsFile> file_;
};

TEST_F(InputParityTest, MatchesTorchvisionNormalize) {
  const at::Tensor images = read("images");
  expect_close(task::preprocess_input(images, {.mean = {0.5}, .std = {0.5}}), "by_halves");
  expect_close(task::preprocess_input(images, kNormalization), "normal");
}

TEST_F(InputParityTest, ScalesImagesToUnitRangeWithoutNormalization) {
  const at::Tensor images = read("images");
  const auto none = task::find_normalization(nullptr, sample_.front());
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  const at::Tensor scaled = task::preprocess_input(images, *none);
  EXPECT_LE((scaled - images.to(at::kFloat) / 255).abs().max().item<double>(), 1e-6);
  EXPECT_GT(scaled.max().item<double>(), 0.9);
}

TEST_F(InputParityTest, MatchesTorchvisionMixup) {
  const data::transform::MixParameters mix{.own_share = read("mixup_share").item<double>()};
  expect_close(task::mix_inputs(read("normal"), mix), "mixup");
  const at::Tensor labels = task::mix_labels(read("labels"), kInputClasses, mix);
  expect_close(labels, "mixup_labels");
  expect_close(at::cross_entropy_loss(read("logits"), labels), "mixup_loss");
}

TEST_F(InputParityTest, MatchesTorchvisionCutmix) {
  for (int number = 0; number < 4; ++number) {
    const std::string name = "cutmix" + std::to_string(number);
    const at::Tensor parameters = read(name + "_given"), box_values = read(name + "_box");
    const data::transform::CutMixBox box =
        data::transform::cutmix_box(parameters[0].item<double>(), parameters[1].item<int64_t>(),
                                    parameters[2].item<int64_t>(), 8, 10);
    EXPECT_EQ(box, (data::transform::CutMixBox{
                       box_values[0].item<int64_t>(), box_values[1].item<int64_t>(),
                       box_values[2].item<int64_t>(), box_values[3].item<int64_t>()}))
        << name;
    const data::transform::MixParameters mix{.own_share = read(name + "_share").item<double>(),
                                             .box = box};
    EXPECT_NEAR(mix.own_share, 1.0 - static_cast<double>(box.area()) / 80, 1e-12);
    expect_close(task::mix_inputs(read("normal"), mix), name);
    expect_close(task::mix_labels(read("labels"), kInputClasses, mix), name + "_labels");
  }
}

// Through the task, as the trainer and the evaluator use it.
TEST_F(InputParityTest, MixesBatchesForTrainingButNotForEvaluation) {
  const std::vector<config::BatchTransform> transforms{
      config::RandomChoice{{config::Mixup{.alpha = 0.4}, config::Cutmix{.alpha = 1.0}}}};
  const auto task = task::make_task({config::ClassificationTask{}}, &kNormalize, sample_,
                                    kInputClasses, transforms);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  const at::Tensor images = read("images"), original = images.clone();
  const auto options = data::transform::make_mix_options(transforms, sample_.front());
  ASSERT_TRUE(options.ok());
  int cut = 0;
  for (uint64_t ticket = 0; ticket < 20; ++ticket) {
    const task::Batch mixed = (*task)->mixed({images, read("labels")}, 9, ticket);
    const data::transform::MixParameters mix = data::transform::sample_mix(*options, 9, ticket);
    if (mix.box) ++cut;
    EXPECT_TRUE(
        mixed[0].equal(task::mix_inputs(task::preprocess_input(images, kNormalization), mix)));
    EXPECT_TRUE(mixed[1].equal(task::mix_labels(read("labels"), kInputClasses, mix)));
  }
  EXPECT_GT(cut, 0);
  EXPECT_LT(cut, 20);
  EXPECT_TRUE(images.equal(original));
}

TEST_F(InputParityTest, AcceptsModelWithMoreClassesThanMixedBatch) {
  const std::vector<TensorSpec> sample{{"input", DType::kF32, {5}}, {"label", DType::kI64, {}}};
  const auto task = task::make_task({config::ClassificationTask{}}, nullptr, sample, 3,
                                    {config::Mixup{.alpha = 1}});
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  Mirror mirror;
  const at::Tensor labels = read("labels").remainder(3);
  const task::Batch mixed = (*task)->mixed({read("logits"), labels}, 1, 1);
  EXPECT_EQ(mixed[1].size(1), 3);
  const data::transform::MixParameters mix = data::transform::sample_mix({.mixup = 1}, 1, 1);
  const at::Tensor expected =
      at::cross_entropy_loss(mixed[0], task::mix_labels(labels, kInputClasses, mix));
  EXPECT_FLOAT_EQ((*task)->loss(mirror, mixed).item<float>(), expected.item<float>());
}

TEST_F(InputParityTest, RejectsTransformsThatDoNotMatchImages) {
  EXPECT_TRUE(task::find_normalization(&kNormalize, sample_.front()).ok());
  const auto gray = task::find_normalization(&kNormalize, {"input", DType::kU8, {1, 8, 8}});
  EXPECT_EQ(gray.status().code(), StatusCode::kMismatch);
  EXPECT_NE(gray.status().message().find("3 means"), std::string::npos);
  const auto numbers = task::find_normalization(&kNormalize, {"input", DType::kF32, {3, 8, 8}});
  EXPECT_EQ(numbers.status().code(), StatusCode::kMismatch);
  EXPECT_NE(numbers.status().message().find("requires uint8 images"), std::string::npos);
}

}  // namespace
}  // namespace stoker::parity
