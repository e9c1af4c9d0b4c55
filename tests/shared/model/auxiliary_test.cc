// The auxiliary head of a model contributes to the training loss, but not to the evaluation loss.
#include <cmath>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"

namespace stoker::task {
namespace {

// The auxiliary logits differ from the main ones.
class TwoHeads : public model::Model {
 public:
  explicit TwoHeads(bool has_auxiliary) : has_auxiliary_(has_auxiliary) {}
  at::Tensor forward(const at::Tensor& input) override { return input; }
  model::Outputs forward_with_aux(const at::Tensor& input) override {
    return {forward(input), has_auxiliary_ ? input * -2.0 : at::Tensor()};
  }

 private:
  const bool has_auxiliary_;
};

class AuxiliaryHeadTest : public ::testing::Test {
 protected:
  double loss(bool has_auxiliary, double weight) {
    TwoHeads model(has_auxiliary);
    return task(weight)->loss(model, batch_).item<double>();
  }
  std::unique_ptr<Task> task(double weight) {
    auto made = make_task({config::ClassificationTask{.aux_loss_weight = weight}}, nullptr,
                          {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}}, 3);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  const Batch batch_{at::linspace(-1, 1, 12).view({4, 3}), at::tensor({0, 1, 2, 0}, at::kLong)};
  const double main_ = at::cross_entropy_loss(batch_[0], batch_[1]).item<double>();
  const double auxiliary_ = at::cross_entropy_loss(batch_[0] * -2.0, batch_[1]).item<double>();
};

TEST_F(AuxiliaryHeadTest, AddsWeightedAuxiliaryLossInTraining) {
  EXPECT_NEAR(loss(true, 0.4), main_ + 0.4 * auxiliary_, 1e-6);
  EXPECT_NEAR(loss(true, 0), main_, 1e-6);
  EXPECT_NEAR(loss(false, 0.4), main_, 1e-6);
}

TEST_F(AuxiliaryHeadTest, IgnoresAuxiliaryLossInEvaluation) {
  TwoHeads model(true);
  const auto evaluation = task(0.4)->start_evaluation({});
  evaluation->add(model, batch_);
  EXPECT_EQ(evaluation->report().metrics[0].first, "loss");
  EXPECT_NEAR(evaluation->report().metrics[0].second, main_, 1e-6);
}

}  // namespace
}  // namespace stoker::task
