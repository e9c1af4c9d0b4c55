// LstmCell: what an LSTM does to each number on its own, between two matrix products: gates to state
// forward, gradients of states to gradients of gates backward.
//
// A row of gates is PyTorch's: i, f, g, o, `hidden` numbers each. Forward keeps them squashed
// (i, f, o by the sigmoid, g by tanh), which is all that backward needs of them; backward puts the
// gradients of the sums that went in into their place.
//
//   c = f * c_before + i * g          h = o * tanh(c)
//
// Threads: pure functions of the memory they are given.
#pragma once

#include <cstdint>

namespace stoker::model {

// Of which rows a step is padding: those whose sequence has ended. What lies there counts for nothing
// and is not looked at.
struct LstmPadding {
  const int64_t* lengths = nullptr;  // [rows]: the real steps; none: all are
  int64_t step = 0;

  bool holds(int64_t row) const { return lengths != nullptr && lengths[row] <= step; }
};

// Rows of one step. A stride is the distance from one row to the next, in numbers.
struct LstmForward {
  int64_t rows = 0;
  int64_t hidden = 0;
  const float* from_input = nullptr;   // [rows, 4 hidden]: products with the weights
  const float* from_before = nullptr;  // [rows, 4 hidden]: the same of the h before
  const float* bias = nullptr;         // [4 hidden]
  float* gates = nullptr;              // [rows, 4 hidden]: the sum of these three, squashed
  const float* c_before = nullptr;     // [rows, hidden]
  float* c = nullptr;                  // [rows, hidden]
  float* h = nullptr;                  // [rows, hidden], rows h_stride apart
  int64_t h_stride = 0;
  LstmPadding padding = {};  // its gates and states are 0
};
void lstm_forward(const LstmForward& step);

struct LstmBackward {
  int64_t rows = 0;
  int64_t hidden = 0;
  float* gates = nullptr;           // [rows, 4 hidden]: squashed; becomes their gradient
  const float* c_before = nullptr;  // [rows, hidden]
  const float* c = nullptr;         // [rows, hidden]
  const float* dh_out = nullptr;    // [rows, hidden], rows dh_stride apart: from what uses h
  int64_t dh_stride = 0;
  const float* dh_next = nullptr;  // [rows, hidden]: from the step after
  float* dc = nullptr;             // [rows, hidden]: from the step after; becomes that of c_before
  float* dbias = nullptr;          // [4 hidden], added to
  LstmPadding padding = {};        // its gradients are 0
};
void lstm_backward(const LstmBackward& step);

}  // namespace stoker::model
