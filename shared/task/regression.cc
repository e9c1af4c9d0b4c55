// regression: one or more numbers a sample, mean squared error.
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "shared/model/data_fit.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"

namespace stoker::task {
namespace {

struct Places {
  size_t input = 0;
  size_t target = 0;
};

at::Tensor output_of(model::Model& model, const Batch& batch, const Places& places) {
  return model.forward(prepare_input(batch.at(places.input))).to(at::kFloat);
}

class RegressionEvaluation : public Evaluation {
 public:
  RegressionEvaluation(Places places, int64_t width)
      : places_(places),
        width_(width),
        squares_(at::zeros({width}, at::kDouble)),
        mean_(squares_.clone()),
        spread_(squares_.clone()) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor target = batch.at(places_.target).flatten(1).to(at::kCPU, at::kDouble);
    const at::Tensor error =
        output_of(model, batch, places_).flatten(1).to(at::kCPU, at::kDouble) - target;
    squares_ += error.square().sum(0);
    absolute_ += error.abs().sum().item<double>();
    add_targets(target);
  }

  MetricValues result() const override {
    const double count = count_ * static_cast<double>(width_);
    return {
        {"loss", squares_.sum().item<double>() / count}, {"mae", absolute_ / count}, {"r2", r2()}};
  }

 private:
  // Mean and sum of squared distances from it, of two parts joined (Chan et al.): no cancellation
  // where the mean is far from zero.
  void add_targets(const at::Tensor& target) {
    const auto added = static_cast<double>(target.size(0));
    const double all = count_ + added;
    const at::Tensor mean = target.mean(0);
    const at::Tensor apart = mean - mean_;
    spread_ += (target - mean).square().sum(0) + apart.square() * (count_ * added / all);
    mean_ += apart * (added / all);
    count_ = all;
  }

  // The mean over the target's columns of 1 - residual / spread; a constant column counts 1 where
  // it is met exactly and 0 otherwise.
  double r2() const {
    if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
    const at::Tensor exact = squares_.eq(0).to(at::kDouble);
    return at::where(spread_.gt(0), 1.0 - squares_ / spread_, exact).mean().item<double>();
  }

  const Places places_;
  const int64_t width_;
  at::Tensor squares_;  // of the errors, by column
  at::Tensor mean_;     // of the targets, by column
  at::Tensor spread_;   // of the targets, by column
  double absolute_ = 0;
  double count_ = 0;
};

class Regression : public Task {
 public:
  Regression(Places places, int64_t width) : places_(places), width_(width) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return at::mse_loss(output_of(model, batch, places_), batch.at(places_.target));
  }
  std::unique_ptr<Evaluation> start_evaluation() const override {
    return std::make_unique<RegressionEvaluation>(places_, width_);
  }

 private:
  const Places places_;
  const int64_t width_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_regression(const Samples& sample, uint64_t classes) {
  Places places;
  STOKER_ASSIGN_OR_RETURN(places.input, component(sample, "input", "regression"));
  STOKER_ASSIGN_OR_RETURN(places.target, component(sample, "target", "regression"));
  const TensorSpec& target = sample[places.target];
  if (target.dtype != DType::kF32 || target.shape.size() != 1 || classes != 0) {
    return Status(Code::kMismatch, "task regression needs `target` F32 [width]; the data has " +
                                       to_string(target) + " of " + std::to_string(classes) +
                                       " classes");
  }
  return std::unique_ptr<Task>(std::make_unique<Regression>(places, target.shape[0]));
}

}  // namespace stoker::task
