// LstmWorker: the share of one thread in an LSTM pass: one direction, some rows of the batch, all
// time steps.
//
// Rows are independent of each other, and so are workers. The exception is the gradients of the
// weights: each worker has a partial sum, and these are added at the end.
//
// Threads: one thread at a time per worker.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "shared/model/lstm_cell.h"
#include "shared/model/lstm_weights.h"

namespace stoker::model {

// `number` counts steps in the order of processing; `step` is the index in time.
struct LstmWorker {
  bool is_reverse;
  int64_t time, steps_per_product;
  at::Tensor input;        // [time, rows, features]
  at::Tensor gates;        // [time, rows, 4 hidden]
  at::Tensor cells;        // [time, rows, hidden]
  at::Tensor output;       // [time, rows, hidden]
  const int64_t* lengths;  // [rows], or null

  int64_t rows() const { return input.size(1); }
  int64_t hidden() const { return cells.size(2); }
  int64_t step(int64_t number) const { return is_reverse ? time - 1 - number : number; }
  int64_t before(int64_t step) const { return is_reverse ? step + 1 : step - 1; }
  LstmPadding padding(int64_t step) const { return {.lengths = lengths, .step = step}; }
  int64_t count_from(int64_t number) const { return std::min(steps_per_product, time - number); }
  // The smallest time index of the steps [number, number + count).
  int64_t earliest(int64_t number, int64_t count) const {
    return std::min(step(number), step(number + count - 1));
  }
};

// Fills the gates, cells and output of the worker.
void run_forward(const LstmWorker& worker, const LstmWeights& weights);

// Contribution of a worker to the weight gradients of its direction.
struct LstmPartition {
  at::Tensor weight_ih;  // [4 hidden, features]
  at::Tensor weight_hh;  // [4 hidden, hidden]
  at::Tensor bias;       // [4 hidden], for both biases
};

// Adds to `partition`. `d_output` [time, rows, hidden] is the gradient of the output. Overwrites
// the gates of the worker with their gradients.
void run_backward(const LstmWorker& worker, const at::Tensor& weight_hh, const at::Tensor& d_output,
                  const LstmPartition& partition);

}  // namespace stoker::model
