// LstmCell: the elementwise part of an LSTM step between two matrix products: gates to states in
// the forward pass, gradients of states to gradients of gates in the backward pass.
//
// A row of gates is laid out as in PyTorch: i, f, g, o, `hidden` values each. The forward pass
// stores the gates after activation (sigmoid for i, f, o; tanh for g), which is all that the
// backward pass needs. The backward pass overwrites them with the gradients of the pre-activations.
//
//   c = f * c_before + i * g          h = o * tanh(c)
//
// Threads: pure functions of the memory that they are given.
#pragma once

#include <cstdint>

namespace stoker::model {

// Identifies the rows that are padding at a time step: those whose sequence has already ended.
// Padding values are ignored and never read.
struct LstmPadding {
  const int64_t* lengths = nullptr;  // [rows]: number of valid time steps; null: all are valid
  int64_t step = 0;

  bool is_padding(int64_t row) const { return lengths != nullptr && lengths[row] <= step; }
};

// Rows of one time step. A stride is the distance between two rows, in elements.
struct LstmForward {
  int64_t rows = 0;
  int64_t hidden = 0;
  const float* from_input = nullptr;   // [rows, 4 hidden]: input times weight_ih
  const float* from_before = nullptr;  // [rows, 4 hidden]: previous h times weight_hh
  const float* bias = nullptr;         // [4 hidden]
  float* gates = nullptr;              // [rows, 4 hidden]: sum of these three after activation
  const float* c_before = nullptr;     // [rows, hidden]
  float* c = nullptr;                  // [rows, hidden]
  float* h = nullptr;                  // [rows, hidden], rows h_stride apart
  int64_t h_stride = 0;
  LstmPadding padding = {};  // gates and states of padding are 0
};
void lstm_forward(const LstmForward& step);

struct LstmBackward {
  int64_t rows = 0;
  int64_t hidden = 0;
  float* gates = nullptr;  // [rows, 4 hidden]: after activation; overwritten with the gradients
  const float* c_before = nullptr;  // [rows, hidden]
  const float* c = nullptr;         // [rows, hidden]
  const float* dh_out = nullptr;    // [rows, hidden], rows dh_stride apart: from the users of h
  int64_t dh_stride = 0;
  const float* dh_next = nullptr;  // [rows, hidden]: from the next step
  float* dc = nullptr;             // [rows, hidden]: from the next step; becomes that of c_before
  float* dbias = nullptr;          // [4 hidden]; accumulated
  LstmPadding padding = {};        // gradients of padding are 0
};
void lstm_backward(const LstmBackward& step);

}  // namespace stoker::model
