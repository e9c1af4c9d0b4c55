#include "shared/model/lstm_lane.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "shared/model/cpu_product.h"

namespace stoker::model {
namespace {

// Steps [from, from + count), a row of the batch after the other; a copy where they lie apart.
at::Tensor matrix(const at::Tensor& sequence, int64_t from, int64_t count) {
  return sequence.narrow(0, from, count).flatten(0, 1);
}

const float* numbers(const at::Tensor& sequence, int64_t step) {
  return sequence.const_data_ptr<float>() + step * sequence.stride(0);
}

float* numbers_to_write(const at::Tensor& sequence, int64_t step) {
  return sequence.mutable_data_ptr<float>() + step * sequence.stride(0);
}

// Adds what the steps [number, number + count) give; their gates hold gradients.
void add_weight_gradients(const LstmLane& lane, int64_t number, const LstmShare& share) {
  const int64_t count = lane.count_from(number), from = lane.earliest(number, count);
  at::Tensor weight_ih = share.weight_ih, weight_hh = share.weight_hh;
  weight_ih.add_(
      cpu_product(matrix(lane.gates, from, count).t(), matrix(lane.input, from, count).t()));
  // The first step of all had no state before it.
  const int64_t skipped = number == 0 ? 1 : 0;
  if (count == skipped) return;
  const int64_t rest = lane.is_reverse ? from : from + skipped;
  weight_hh.add_(cpu_product(matrix(lane.gates, rest, count - skipped).t(),
                             matrix(lane.output, lane.before(rest), count - skipped).t()));
}

}  // namespace

void forward_lane(const LstmLane& lane, const LstmWeights& weights) {
  const at::Tensor bias = weights.bias_ih.add(weights.bias_hh);
  const at::Tensor no_cells = at::zeros({lane.rows(), lane.hidden()}, bias.options());
  at::Tensor from_input, from_before = at::zeros({lane.rows(), 4 * lane.hidden()}, bias.options());
  const at::Tensor of_before = packed_for_products(weights.weight_hh.detach(), lane.rows());
  int64_t earliest = 0;  // of the steps whose inputs from_input holds
  for (int64_t number = 0; number < lane.time; ++number) {
    const int64_t step = lane.step(number), before = lane.before(step);
    if (number % lane.steps_at_once == 0) {
      const int64_t count = lane.count_from(number);
      earliest = lane.earliest(number, count);
      from_input = cpu_product(matrix(lane.input, earliest, count), weights.weight_ih);
    }
    if (number > 0) from_before = cpu_product(lane.output[before], of_before);
    lstm_forward({.rows = lane.rows(),
                  .hidden = lane.hidden(),
                  .from_input = numbers(from_input, (step - earliest) * lane.rows()),
                  .from_before = from_before.const_data_ptr<float>(),
                  .bias = bias.const_data_ptr<float>(),
                  .gates = numbers_to_write(lane.gates, step),
                  .c_before = number > 0 ? numbers(lane.cells, before) : numbers(no_cells, 0),
                  .c = numbers_to_write(lane.cells, step),
                  .h = numbers_to_write(lane.output, step),
                  .h_stride = lane.output.stride(1),
                  .padding = lane.padding(step)});
  }
}

void backward_lane(const LstmLane& lane, const at::Tensor& weight_hh, const at::Tensor& d_output,
                   const LstmShare& share) {
  const at::Tensor no_cells = at::zeros({lane.rows(), lane.hidden()}, weight_hh.options());
  const at::Tensor dc = at::zeros_like(no_cells),
                   to_before = packed_for_products(weight_hh.detach().t(), lane.rows());
  at::Tensor dh = at::zeros_like(no_cells);
  for (int64_t number = lane.time - 1; number >= 0; --number) {
    const int64_t step = lane.step(number), before = lane.before(step);
    lstm_backward({.rows = lane.rows(),
                   .hidden = lane.hidden(),
                   .gates = numbers_to_write(lane.gates, step),
                   .c_before = number > 0 ? numbers(lane.cells, before) : numbers(no_cells, 0),
                   .c = numbers(lane.cells, step),
                   .dh_out = numbers(d_output, step),
                   .dh_stride = d_output.stride(1),
                   .dh_next = dh.const_data_ptr<float>(),
                   .dc = dc.mutable_data_ptr<float>(),
                   .dbias = share.bias.mutable_data_ptr<float>(),
                   .padding = lane.padding(step)});
    if (number > 0) dh = cpu_product(lane.gates[step], to_before);
    if (number % lane.steps_at_once == 0) add_weight_gradients(lane, number, share);
  }
}

}  // namespace stoker::model
