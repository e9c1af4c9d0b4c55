// regression: one or more numbers a sample, mean squared error.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>

#include "shared/model/data_fit.h"
#include "shared/score/regression_score.h"
#include "shared/task/host_values.h"
#include "shared/task/kinds.h"
#include "shared/task/prepare_input.h"

namespace stoker::task {
namespace {

struct Places {
  size_t input = 0;
  size_t target = 0;
  Normalization normalization = {};
};

at::Tensor output_of(model::Model& model, const Batch& batch, const Places& places) {
  const at::Tensor& input = batch.at(places.input);
  return model.forward(prepare_input(input, places.normalization)).to(at::kFloat);
}

class RegressionEvaluation : public Evaluation {
 public:
  RegressionEvaluation(Places places, int64_t width)
      : places_(places), score_(static_cast<size_t>(width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const HostValues<float> outputs(output_of(model, batch, places_));
    const HostValues<float> targets(batch.at(places_.target));
    score_.add(outputs.span(), targets.span());
  }

  score::Report report() const override { return score_.report(); }

 private:
  const Places places_;
  score::RegressionScore score_;
};

class Regression : public Task {
 public:
  Regression(Places places, int64_t width) : places_(places), width_(width) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return at::mse_loss(output_of(model, batch, places_), batch.at(places_.target));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings&) const override {
    return std::make_unique<RegressionEvaluation>(places_, width_);
  }

 private:
  const Places places_;
  const int64_t width_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_regression(const config::TaskConfig& config,
                                              const Samples& sample, uint64_t classes) {
  Places places;
  STOKER_ASSIGN_OR_RETURN(places.input, component(sample, "input", "regression"));
  STOKER_ASSIGN_OR_RETURN(places.target, component(sample, "target", "regression"));
  const TensorSpec& target = sample[places.target];
  if (target.dtype != DType::kF32 || target.shape.size() != 1 || classes != 0) {
    return Status(Code::kMismatch, "task regression needs `target` F32 [width]; the data has " +
                                       to_string(target) + " of " + std::to_string(classes) +
                                       " classes");
  }
  STOKER_ASSIGN_OR_RETURN(places.normalization, normalization_of(config, sample[places.input]));
  return std::unique_ptr<Task>(std::make_unique<Regression>(places, target.shape[0]));
}

}  // namespace stoker::task
