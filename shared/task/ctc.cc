// ctc: fewer labels than time steps, in order but without alignment: connectionist temporal
// classification (Graves et al., 2006). Class 0 is the blank, which separates labels and is never
// one.
//
// LibTorch uses cuDNN's loss if labels are one-dimensional I32 and at most 256 per sample. For I64
// labels, as here, it uses its own implementation on every device. That one copies the lengths to
// the host, so the step cannot be captured in a CUDA graph, and its backward pass on a GPU sums in
// nondeterministic order.
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>

#include "shared/eval_metrics/eval_metrics.h"
#include "shared/task/host_values.h"
#include "shared/task/label_loss.h"
#include "shared/task/sequence_labels.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

constexpr int64_t kBlank = 0;

struct Alignment {
  at::Tensor log_probabilities;  // F32 [steps, batch, outputs]
  at::Tensor steps;              // I64 [batch]: number of valid steps
  at::Tensor labels;             // I64 [batch, labels]
  at::Tensor counts;             // I64 [batch]: number of labels
};

// LibTorch uses the labels as indices without checking them, so they are checked here: classes
// except the blank, followed by padding only. The check does not synchronize with the device.
void check_labels(const at::Tensor& labels, const at::Tensor& counts, int64_t outputs) {
  const at::Tensor position = at::arange(labels.size(1), labels.options()).unsqueeze(0);
  const at::Tensor is_class = labels.gt(kBlank).logical_and(labels.lt(outputs));
  const at::Tensor fits = is_class.eq(position.lt(counts.unsqueeze(1)));
  at::_assert_async(fits.all(),
                    "task ctc: labels must be classes from 1 (0 is the blank) to below the model's "
                    "outputs, and behind them -100 only");
}

Alignment alignment_of(model::Model& model, const Batch& batch, const SequenceLabels& indices) {
  const at::Tensor logits = step_outputs(model, batch, indices.input);
  const at::Tensor& labels = batch.at(indices.labels);
  const at::Tensor counts = labels.ne(kIgnoredLabel).sum(1);
  check_labels(labels, counts, logits.size(2));
  const at::Tensor length = sequence_lengths(batch, indices.input, logits.size(1));
  return {at::log_softmax(logits, 2).transpose(0, 1),
          length.defined() ? length : at::full_like(counts, logits.size(1)), labels, counts};
}

at::Tensor loss_of(const Alignment& alignment, int64_t reduction, bool zero_infinity) {
  return at::ctc_loss(alignment.log_probabilities, alignment.labels, alignment.steps,
                      alignment.counts, kBlank, reduction, zero_infinity);
}

class CtcEvaluation : public Evaluation {
 public:
  CtcEvaluation(SequenceLabels indices, bool zero_infinity)
      : indices_(std::move(indices)), zero_infinity_(zero_infinity) {}

  void add(model::Model& model, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const Alignment alignment = alignment_of(model, batch, indices_);
    const at::Tensor sums = loss_of(alignment, at::Reduction::None, zero_infinity_);
    const HostValues<float> losses(sums / alignment.counts.clamp_min(1));
    const HostValues<int64_t> labels(alignment.labels), counts(alignment.counts),
        steps(alignment.steps), paths(alignment.log_probabilities.argmax(2).t());
    const size_t max_steps = paths.span().size() / losses.span().size(),
                 max_label_length = labels.span().size() / losses.span().size();
    for (size_t i = 0; i < losses.span().size(); ++i) {
      const auto real = paths.span().subspan(i * max_steps, static_cast<size_t>(steps.span()[i]));
      std::vector<int64_t> path(real.begin(), real.end());
      metrics_.add(
          losses.span()[i], eval_metrics::collapse(path, kBlank),
          labels.span().subspan(i * max_label_length, static_cast<size_t>(counts.span()[i])));
    }
  }

  eval_metrics::EvalReport report() const override { return metrics_.report(); }

 private:
  const SequenceLabels indices_;
  const bool zero_infinity_;
  eval_metrics::LabelErrorRate metrics_;
};

class Ctc : public Task {
 public:
  Ctc(SequenceLabels indices, bool zero_infinity)
      : indices_(std::move(indices)), zero_infinity_(zero_infinity) {}

  LossAndMetric loss_and_metric(model::Model& model, const Batch& batch) const override {
    return {.loss =
                loss_of(alignment_of(model, batch, indices_), at::Reduction::Mean, zero_infinity_)};
  }
  std::unique_ptr<Evaluation> start_evaluation(const EvaluationOptions&) const override {
    return std::make_unique<CtcEvaluation>(indices_, zero_infinity_);
  }

 private:
  const SequenceLabels indices_;
  const bool zero_infinity_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_ctc(const config::CtcTask& config,
                                       const config::Normalize* maybe_normalize,
                                       const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(SequenceLabels indices,
                          find_sequence_labels(maybe_normalize, sample, classes, "ctc"));
  return std::unique_ptr<Task>(std::make_unique<Ctc>(std::move(indices), config.zero_infinity));
}

}  // namespace stoker::task
