#include "shared/model/key_value_cache.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace stoker::model {
namespace {

constexpr int64_t kMinCapacity = 16;

// `buffer` with space for `capacity` time steps, of which the first `length` are kept.
void reserve(at::Tensor& buffer, int64_t length, int64_t capacity, const at::Tensor& like) {
  const at::Tensor larger =
      at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (length > 0) larger.narrow(2, 0, length).copy_(buffer.narrow(2, 0, length));
  buffer = larger;
}

}  // namespace

void CachedLayer::append(const KeysAndValues& next) {
  const int64_t time = next.keys.size(2), length = length_ + time;
  const int64_t capacity = buffer_.keys.defined() ? buffer_.keys.size(2) : 0;
  if (length > capacity) {
    const int64_t larger = std::max({length, 2 * capacity, kMinCapacity});
    reserve(buffer_.keys, length_, larger, next.keys);
    reserve(buffer_.values, length_, larger, next.values);
  }
  buffer_.keys.narrow(2, length_, time).copy_(next.keys);
  buffer_.values.narrow(2, length_, time).copy_(next.values);
  length_ = length;
}

KeysAndValues CachedLayer::all() const {
  return {buffer_.keys.narrow(2, 0, length_), buffer_.values.narrow(2, 0, length_)};
}

void CachedLayer::select_rows(const at::Tensor& rows) {
  if (length_ == 0) return;
  buffer_ = {buffer_.keys.index_select(0, rows), buffer_.values.index_select(0, rows)};
}

CachedLayer& KeyValueCache::layer(size_t index) {
  while (layers_.size() <= index) layers_.emplace_back();
  return layers_[index];
}

void KeyValueCache::select_rows(const at::Tensor& rows) {
  for (CachedLayer& layer : layers_) layer.select_rows(rows);
}

}  // namespace stoker::model
