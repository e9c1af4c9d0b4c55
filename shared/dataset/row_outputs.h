// RowOutputs: the rows of a batch's tensors, each of which has its rows one after another.
//
// Threads: one at a time.
// Owner:   the bytes must outlive this object.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <vector>

namespace stoker::dataset {

class RowOutputs {
 public:
  // Each of `rows` is `count` rows of a tensor.
  RowOutputs(std::span<const std::span<std::byte>> rows, size_t count)
      : rows_(rows), taken_(rows.size()), count_(count) {
    row_bytes_.reserve(rows.size());
    for (const auto& tensor : rows) row_bytes_.push_back(tensor.size() / count);
  }

  // Of each tensor the row; valid until the next call.
  std::span<const std::span<std::byte>> of(size_t row) { return of(row, 1); }
  // Of each tensor `count` rows from there on.
  std::span<const std::span<std::byte>> of(size_t first, size_t count) {
    assert(first + count <= count_);
    for (size_t tensor = 0; tensor < rows_.size(); ++tensor)
      taken_[tensor] =
          rows_[tensor].subspan(first * row_bytes_[tensor], count * row_bytes_[tensor]);
    return taken_;
  }

 private:
  const std::span<const std::span<std::byte>> rows_;
  std::vector<size_t> row_bytes_;
  std::vector<std::span<std::byte>> taken_;  // what of() gave last
  const size_t count_;
};

}  // namespace stoker::dataset
