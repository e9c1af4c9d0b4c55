#include "shared/model/lstm_worker.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "shared/model/cpu_matmul.h"

namespace stoker::model {
namespace {

// Steps [from, from + count) as one matrix, all rows of a step after another; copies if they are
// not contiguous.
at::Tensor matrix(const at::Tensor& sequence, int64_t from, int64_t count) {
  return sequence.narrow(0, from, count).flatten(0, 1);
}

const float* row_data(const at::Tensor& sequence, int64_t step) {
  return sequence.const_data_ptr<float>() + step * sequence.stride(0);
}

float* mutable_row_data(const at::Tensor& sequence, int64_t step) {
  return sequence.mutable_data_ptr<float>() + step * sequence.stride(0);
}

// Adds the contribution of steps [number, number + count), whose gates already contain gradients.
void add_weight_gradients(const LstmWorker& worker, int64_t number,
                          const LstmPartition& partition) {
  const int64_t count = worker.count_from(number), from = worker.earliest(number, count);
  at::Tensor weight_ih = partition.weight_ih, weight_hh = partition.weight_hh;
  weight_ih.add_(
      cpu_matmul(matrix(worker.gates, from, count).t(), matrix(worker.input, from, count).t()));
  // The first step has no previous state.
  const int64_t skipped = number == 0 ? 1 : 0;
  if (count == skipped) return;
  const int64_t rest = worker.is_reverse ? from : from + skipped;
  weight_hh.add_(cpu_matmul(matrix(worker.gates, rest, count - skipped).t(),
                            matrix(worker.output, worker.before(rest), count - skipped).t()));
}

}  // namespace

void run_forward(const LstmWorker& worker, const LstmWeights& weights) {
  const at::Tensor bias = weights.bias_ih.add(weights.bias_hh);
  const at::Tensor no_cells = at::zeros({worker.rows(), worker.hidden()}, bias.options());
  at::Tensor from_input,
      from_before = at::zeros({worker.rows(), 4 * worker.hidden()}, bias.options());
  const at::Tensor packed_weight_hh = pack_for_matmul(weights.weight_hh.detach(), worker.rows());
  int64_t earliest = 0;  // first time index of the steps in from_input
  for (int64_t number = 0; number < worker.time; ++number) {
    const int64_t step = worker.step(number), before = worker.before(step);
    if (number % worker.steps_per_product == 0) {
      const int64_t count = worker.count_from(number);
      earliest = worker.earliest(number, count);
      from_input = cpu_matmul(matrix(worker.input, earliest, count), weights.weight_ih);
    }
    if (number > 0) from_before = cpu_matmul(worker.output[before], packed_weight_hh);
    lstm_forward({.rows = worker.rows(),
                  .hidden = worker.hidden(),
                  .from_input = row_data(from_input, (step - earliest) * worker.rows()),
                  .from_before = from_before.const_data_ptr<float>(),
                  .bias = bias.const_data_ptr<float>(),
                  .gates = mutable_row_data(worker.gates, step),
                  .c_before = number > 0 ? row_data(worker.cells, before) : row_data(no_cells, 0),
                  .c = mutable_row_data(worker.cells, step),
                  .h = mutable_row_data(worker.output, step),
                  .h_stride = worker.output.stride(1),
                  .padding = worker.padding(step)});
  }
}

void run_backward(const LstmWorker& worker, const at::Tensor& weight_hh, const at::Tensor& d_output,
                  const LstmPartition& partition) {
  const at::Tensor no_cells = at::zeros({worker.rows(), worker.hidden()}, weight_hh.options());
  const at::Tensor dc = at::zeros_like(no_cells),
                   packed_weight_hh = pack_for_matmul(weight_hh.detach().t(), worker.rows());
  at::Tensor dh = at::zeros_like(no_cells);
  for (int64_t number = worker.time - 1; number >= 0; --number) {
    const int64_t step = worker.step(number), before = worker.before(step);
    lstm_backward({.rows = worker.rows(),
                   .hidden = worker.hidden(),
                   .gates = mutable_row_data(worker.gates, step),
                   .c_before = number > 0 ? row_data(worker.cells, before) : row_data(no_cells, 0),
                   .c = row_data(worker.cells, step),
                   .dh_out = row_data(d_output, step),
                   .dh_stride = d_output.stride(1),
                   .dh_next = dh.const_data_ptr<float>(),
                   .dc = dc.mutable_data_ptr<float>(),
                   .dbias = partition.bias.mutable_data_ptr<float>(),
                   .padding = worker.padding(step)});
    if (number > 0) dh = cpu_matmul(worker.gates[step], packed_weight_hh);
    if (number % worker.steps_per_product == 0) add_weight_gradients(worker, number, partition);
  }
}

}  // namespace stoker::model
