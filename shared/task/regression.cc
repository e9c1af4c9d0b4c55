// regression: one or more numbers a sample, mean squared error.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>

#include "shared/score/regression_score.h"
#include "shared/task/host_values.h"
#include "shared/task/input_target.h"
#include "shared/task/kinds.h"

namespace stoker::task {
namespace {

class RegressionEvaluation : public Evaluation {
 public:
  explicit RegressionEvaluation(InputAndTarget places)
      : places_(std::move(places)), score_(static_cast<size_t>(places_.width)) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const HostValues<float> outputs(outputs_of(model, batch, places_.input));
    const HostValues<float> targets(batch.at(places_.target));
    score_.add(outputs.span(), targets.span());
  }

  score::Report report() const override { return score_.report(); }

 private:
  const InputAndTarget places_;
  score::RegressionScore score_;
};

class Regression : public Task {
 public:
  explicit Regression(InputAndTarget places) : places_(std::move(places)) {}

  at::Tensor loss(model::Model& model, const Batch& batch) const override {
    return at::mse_loss(outputs_of(model, batch, places_.input), batch.at(places_.target));
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationSettings&) const override {
    return std::make_unique<RegressionEvaluation>(places_);
  }

 private:
  const InputAndTarget places_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_regression(const config::Normalize* maybe_normalize,
                                              const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(InputAndTarget places,
                          find_input_and_target(maybe_normalize, sample, classes, "regression",
                                                "`target` F32 [width]"));
  return std::unique_ptr<Task>(std::make_unique<Regression>(std::move(places)));
}

}  // namespace stoker::task
