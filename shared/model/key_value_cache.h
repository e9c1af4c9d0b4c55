// KeyValueCache: the keys and values of the attention layers of a model for the tokens that it has
// processed, so that a further token costs the computation of one.
//
// Threads: one thread.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <ATen/core/Tensor.h>

namespace stoker::model {

struct KeysAndValues {
  at::Tensor keys, values;  // [rows, heads, time, head_dim]
};

// Those of one layer.
class CachedLayer {
 public:
  int64_t length() const { return length_; }  // number of time steps
  // Appends those of the next time steps.
  void append(const KeysAndValues& next);
  // All of them: views that are valid until the next append().
  KeysAndValues all() const;
  void select_rows(const at::Tensor& rows);

 private:
  KeysAndValues buffer_;  // with space for more time steps
  int64_t length_ = 0;
};

class KeyValueCache {
 public:
  // The number of tokens that the model has processed.
  int64_t length() const { return layers_.empty() ? 0 : layers_.front().length(); }
  // The layers that a model uses are its own choice; layer 0 has the keys of all tokens.
  CachedLayer& layer(size_t index);
  // Row i becomes what row rows[i] was, so that rows can be dropped, repeated and reordered. `rows`:
  // I64, on the device of the model.
  void select_rows(const at::Tensor& rows);

 private:
  std::deque<CachedLayer> layers_;  // keeps references valid
};

}  // namespace stoker::model
