#include "shared/model/lstm_pass.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/cpu_matmul.h"
#include "shared/model/lstm_worker.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMinRows = 64;  // fewer rows make matrix products inefficient
constexpr int64_t kRowsPerProduct =
    512;  // target for the input product, which covers several steps
constexpr size_t kWeightsPerDirection = 4;  // per direction

// How the work is divided: by direction and part of the batch, and how many steps share one input
// product.
struct Partitioning {
  int64_t time, batch, directions, parts, rows, steps;

  Partitioning(const at::Tensor& input, int64_t directions_)
      : time(input.size(0)), batch(input.size(1)), directions(directions_) {
    const int64_t max_parts = std::max<int64_t>(1, at::get_num_threads() / directions);
    parts = std::clamp<int64_t>(batch / kMinRows, 1, max_parts);
    rows = (batch + parts - 1) / parts;
    parts = (batch + rows - 1) / rows;
    steps = std::clamp<int64_t>(kRowsPerProduct / rows, 1, time);
  }
};

// Data shared by all workers.
struct Pass {
  at::Tensor input;
  at::Tensor output;              // [time, batch, directions * hidden]
  std::vector<at::Tensor> gates;  // per direction: [time, batch, 4 hidden]
  std::vector<at::Tensor> cells;  // per direction: [time, batch, hidden]
  at::Tensor length;              // I64 [batch], or undefined
};

at::Tensor direction_of(const at::Tensor& wide, size_t direction, int64_t hidden) {
  return wide.narrow(2, static_cast<int64_t>(direction) * hidden, hidden);
}

// Calls run_worker(direction, part, first row, rows) for all workers, on the available threads.
void for_each_worker(const Partitioning& partitioning,
                     const std::function<void(size_t, size_t, int64_t, int64_t)>& run_worker) {
  const auto run = [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;  // thread-local, so it is set on each thread
    for (int64_t worker = begin; worker < end; ++worker) {
      const int64_t part = worker / partitioning.directions, row = part * partitioning.rows;
      run_worker(static_cast<size_t>(worker % partitioning.directions), static_cast<size_t>(part),
                 row, std::min(partitioning.rows, partitioning.batch - row));
    }
  };
  const int64_t workers = partitioning.directions * partitioning.parts;
  // A single worker runs outside a parallel region, so that its products can use all threads.
  if (workers == 1 || at::get_num_threads() == 1)
    run(0, workers);
  else
    at::parallel_for(0, workers, 1, run);
}

LstmWorker make_worker(const Pass& pass, const Partitioning& partitioning, size_t direction,
                       int64_t row, int64_t rows) {
  const at::Tensor& cells = pass.cells[direction];
  return {.is_reverse = direction == 1,
          .time = partitioning.time,
          .steps_per_product = partitioning.steps,
          .input = pass.input.narrow(1, row, rows),
          .gates = pass.gates[direction].narrow(1, row, rows),
          .cells = cells.narrow(1, row, rows),
          .output = direction_of(pass.output, direction, cells.size(2)).narrow(1, row, rows),
          .lengths = pass.length.defined() ? pass.length.const_data_ptr<int64_t>() + row : nullptr};
}

Pass forward_pass(const at::Tensor& input, const std::vector<LstmWeights>& directions,
                  const at::Tensor& length) {
  const Partitioning partitioning(input, static_cast<int64_t>(directions.size()));
  const int64_t hidden = directions.front().weight_hh.size(1);
  Pass pass{input.contiguous(),
            at::empty({partitioning.time, partitioning.batch, partitioning.directions * hidden},
                      input.options()),
            {},
            {},
            length};
  for (size_t i = 0; i < directions.size(); ++i) {
    pass.gates.push_back(
        at::empty({partitioning.time, partitioning.batch, 4 * hidden}, input.options()));
    pass.cells.push_back(
        at::empty({partitioning.time, partitioning.batch, hidden}, input.options()));
  }
  for_each_worker(partitioning, [&](size_t direction, size_t, int64_t row, int64_t rows) {
    run_forward(make_worker(pass, partitioning, direction, row, rows), directions[direction]);
  });
  return pass;
}

// Sums over the parts of the batch, in order.
at::Tensor sum_of(const std::vector<LstmPartition>& partitions, at::Tensor LstmPartition::*which) {
  at::Tensor sum = partitions.front().*which;
  for (size_t part = 1; part < partitions.size(); ++part) sum.add_(partitions[part].*which);
  return sum;
}

// Gradients of the weights, four per direction. Overwrites the gates with their gradients.
variable_list backward_pass(const Pass& pass, const std::vector<LstmWeights>& directions,
                            const at::Tensor& d_output) {
  const Partitioning partitioning(pass.input, static_cast<int64_t>(directions.size()));
  const int64_t hidden = directions.front().weight_hh.size(1);
  std::vector<std::vector<LstmPartition>> partitions(directions.size());
  for (size_t i = 0; i < directions.size(); ++i)
    for (int64_t part = 0; part < partitioning.parts; ++part)
      partitions[i].push_back({at::zeros_like(directions[i].weight_ih),
                               at::zeros_like(directions[i].weight_hh),
                               at::zeros_like(directions[i].bias_ih)});
  for_each_worker(partitioning, [&](size_t direction, size_t part, int64_t row, int64_t rows) {
    run_backward(make_worker(pass, partitioning, direction, row, rows),
                 directions[direction].weight_hh,
                 direction_of(d_output, direction, hidden).narrow(1, row, rows),
                 partitions[direction][part]);
  });
  variable_list gradients;
  for (const auto& parts : partitions) {
    const at::Tensor bias = sum_of(parts, &LstmPartition::bias);
    gradients.insert(gradients.end(),
                     {sum_of(parts, &LstmPartition::weight_ih),
                      sum_of(parts, &LstmPartition::weight_hh), bias, bias.clone()});
  }
  return gradients;
}

at::Tensor input_gradient(const Pass& pass, const std::vector<LstmWeights>& directions) {
  at::Tensor sum;
  for (size_t i = 0; i < directions.size(); ++i) {
    const at::Tensor gradient =
        cpu_matmul(pass.gates[i].flatten(0, 1), directions[i].weight_ih.t());
    sum = i == 0 ? gradient : sum.add_(gradient);
  }
  return sum.view({pass.input.size(0), pass.input.size(1), -1});
}

// Saved variables: input, output, length, then for each direction gates, cells and the four
// weights.
class LstmFunction : public torch::autograd::Function<LstmFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& maybe_length, at::TensorList weights) {
    std::vector<LstmWeights> directions;
    for (size_t i = 0; i < weights.size(); i += kWeightsPerDirection)
      directions.push_back({weights[i], weights[i + 1], weights[i + 2], weights[i + 3]});
    const Pass pass = forward_pass(input, directions, maybe_length.value_or(at::Tensor()));
    variable_list saved{pass.input, pass.output, pass.length};
    for (size_t i = 0; i < directions.size(); ++i) {
      const LstmWeights& direction_weights = directions[i];
      saved.insert(saved.end(), {pass.gates[i], pass.cells[i], direction_weights.weight_ih,
                                 direction_weights.weight_hh, direction_weights.bias_ih,
                                 direction_weights.bias_hh});
    }
    context->save_for_backward(saved);
    return pass.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const variable_list saved = context->get_saved_variables();
    Pass pass{saved[0], saved[1], {}, {}, saved[2]};
    std::vector<LstmWeights> directions;
    for (size_t i = 3; i < saved.size(); i += kWeightsPerDirection + 2) {
      pass.gates.push_back(saved[i]);
      pass.cells.push_back(saved[i + 1]);
      directions.push_back({saved[i + 2], saved[i + 3], saved[i + 4], saved[i + 5]});
    }
    variable_list result = backward_pass(pass, directions, gradients[0].contiguous());
    // A second backward pass would read gradients instead of gates. With the bumped version,
    // LibTorch rejects it.
    for (const at::Tensor& gates : pass.gates) gates.unsafeGetTensorImpl()->bump_version();
    const bool needs_input_gradient = context->needs_input_grad(0);
    result.insert(
        result.begin(),
        {needs_input_gradient ? input_gradient(pass, directions) : at::Tensor(), at::Tensor()});
    return result;
  }
};

}  // namespace

at::Tensor lstm_pass(const at::Tensor& input, const std::vector<LstmWeights>& directions,
                     const at::Tensor& length) {
  variable_list weights;
  for (const LstmWeights& direction_weights : directions)
    weights.insert(weights.end(), {direction_weights.weight_ih, direction_weights.weight_hh,
                                   direction_weights.bias_ih, direction_weights.bias_hh});
  std::optional<at::Tensor> maybe_length;
  if (length.defined()) maybe_length = length.contiguous();
  return LstmFunction::apply(input, maybe_length, at::TensorList(weights));
}

}  // namespace stoker::model
