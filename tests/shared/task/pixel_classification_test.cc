// One label per pixel: ignored pixels, weights, and metrics of all pixels together.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/label_loss.h"
#include "shared/task/task.h"
#include "tests/shared/task/echo.h"

namespace stoker::task {
namespace {

constexpr int64_t kPixelClasses = 3, kHeight = 4, kWidth = 5;
constexpr int64_t kIgnoredPixel = 255;

const TensorSpec kPixelInput{"input", DType::kF32, {kPixelClasses, kHeight, kWidth}};
const TensorSpec kMask{"mask", DType::kU8, {kHeight, kWidth}};

Result<std::unique_ptr<Task>> pixel_task(
    const std::vector<TensorSpec>& sample, std::vector<double> weights = {},
    uint64_t classes = kPixelClasses,
    const std::vector<config::BatchTransform>& batch_transforms = {}) {
  config::ClassificationTask task;
  task.class_weights.values = std::move(weights);
  return make_task({task}, nullptr, sample, classes, batch_transforms, false);
}

class PixelClassificationTest : public ::testing::Test {
 protected:
  PixelClassificationTest() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(9);
  }
  // A third of the pixels is ignored on average.
  static Batch batch_of(int64_t samples) {
    const at::Tensor mask = at::randint(kPixelClasses, {samples, kHeight, kWidth}, at::kLong);
    const at::Tensor is_ignored = at::randint(3, mask.sizes(), at::kLong).eq(0);
    return {at::randn({samples, kPixelClasses, kHeight, kWidth}),
            mask.masked_fill(is_ignored, kIgnoredPixel).to(at::kByte)};
  }
  static std::map<std::string, double> metrics_of(const Task& task,
                                                  const std::vector<Batch>& batches) {
    Echo model;
    const auto evaluation = task.start_evaluation({.top_k = 2, .misclassified = 5});
    for (const Batch& batch : batches) evaluation->add(model, batch);
    const auto metrics = evaluation->report().metrics;
    return {metrics.begin(), metrics.end()};
  }
};

TEST_F(PixelClassificationTest, AveragesLossOverPixelsThatAreNotIgnored) {
  Echo model;
  const Batch batch = batch_of(4);
  for (const std::vector<double>& weights : {std::vector<double>{}, {0.5, 1, 3}}) {
    const std::optional<at::Tensor> weight =
        weights.empty() ? std::nullopt : std::optional(at::tensor(weights, at::kFloat));
    const double expected = at::cross_entropy_loss(batch[0], batch[1].to(at::kLong), weight,
                                                   at::Reduction::Mean, kIgnoredPixel)
                                .item<double>();
    const auto task = pixel_task({kPixelInput, kMask}, weights);
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    EXPECT_NEAR((*task)->loss(model, batch).item<double>(), expected, 1e-6);
  }
}

TEST_F(PixelClassificationTest, ReturnsZeroLossWithoutCountedPixels) {
  Echo model;
  const Batch batch{at::randn({2, kPixelClasses, kHeight, kWidth}),
                    at::full({2, kHeight, kWidth}, kIgnoredPixel, at::kByte)};
  EXPECT_EQ((*pixel_task({kPixelInput, kMask}))->loss(model, batch).item<double>(), 0);
}

// Intersection over union of all pixels of the dataset, class by class.
TEST_F(PixelClassificationTest, ComputesMeanIntersectionOverUnion) {
  const std::vector<Batch> batches{batch_of(3), batch_of(2)};
  std::vector<double> both(kPixelClasses), either(kPixelClasses);
  double correct = 0, count = 0;
  for (const Batch& batch : batches) {
    const at::Tensor labels = batch[1].to(at::kLong).flatten();
    const at::Tensor predictions = batch[0].argmax(1).flatten();
    for (int64_t i = 0; i < labels.numel(); ++i) {
      const auto label = labels[i].item<int64_t>(), predicted = predictions[i].item<int64_t>();
      if (label == kIgnoredPixel) continue;
      ++count;
      correct += label == predicted;
      both[static_cast<size_t>(label)] += label == predicted;
      ++either[static_cast<size_t>(label)];
      if (label != predicted) ++either[static_cast<size_t>(predicted)];
    }
  }
  double mean_iou = 0;
  for (size_t label = 0; label < both.size(); ++label)
    mean_iou += both[label] / either[label] / kPixelClasses;
  const auto task = pixel_task({kPixelInput, kMask});
  const auto metrics = metrics_of(**task, batches);
  EXPECT_NEAR(metrics.at("mean_iou"), mean_iou, 1e-9);
  EXPECT_NEAR(metrics.at("accuracy"), correct / count, 1e-9);
}

TEST_F(PixelClassificationTest, ReportsNoCurvesOfPixels) {
  Echo model;
  const auto task = pixel_task({kPixelInput, kMask});
  const auto evaluation = (*task)->start_evaluation({});
  evaluation->add(model, batch_of(2));
  const eval_metrics::EvalReport report = evaluation->report();
  EXPECT_EQ(report.pr_curves.size(), 0u);
  EXPECT_EQ(report.classes.size(), static_cast<size_t>(kPixelClasses));
}

TEST_F(PixelClassificationTest, RejectsDataThatDoesNotFit) {
  EXPECT_THAT(pixel_task({kPixelInput, kMask}, {}, 1).status().message(),
              ::testing::HasSubstr("needs `mask` U8 [height, width] of 2 or more classes"));
  EXPECT_THAT(pixel_task({kPixelInput, kMask}, {}, 3, {config::Mixup{}}).status().message(),
              ::testing::HasSubstr("mixup and cutmix need one label per sample"));
  EXPECT_THAT(pixel_task({kPixelInput, kMask}, {1, 2}).status().message(),
              ::testing::HasSubstr("task.class_weights has 2 values"));
  Echo model;
  const Batch smaller{at::randn({2, kPixelClasses, 2, 2}),
                      at::full({2, kHeight, kWidth}, 1, at::kByte)};
  EXPECT_THROW((*pixel_task({kPixelInput, kMask}))->loss(model, smaller), c10::Error);
}

}  // namespace
}  // namespace stoker::task
