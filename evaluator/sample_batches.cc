#include "evaluator/sample_batches.h"

#include <algorithm>

#include <ATen/ops/from_blob.h>

#include "shared/data/order/bucket_plan.h"
#include "shared/model/torch_dtype.h"

namespace stoker::evaluator {

SampleBatches::SampleBatches(const data::Dataset& data, const Subset& subset, uint64_t batch,
                             std::span<const int64_t> buckets)
    : data_(data), subset_(subset) {
  const uint64_t samples = subset.size();
  if (buckets.empty() || data.max_length() == 0 || data.size() > data::order::kMaxBucketed) {
    add_batches(samples, batch, data.max_length());
    return;
  }
  const data::order::LengthBuckets by_length(data, buckets);
  for (size_t bucket = 0; bucket < by_length.buckets().size(); ++bucket) {
    const uint64_t before = order_.size();
    for (uint64_t position = 0; position < by_length.buckets()[bucket].size; ++position) {
      const uint64_t sample = by_length.sample(bucket, position);
      if (subset.contains(sample)) order_.push_back(sample);
    }
    add_batches(order_.size() - before, batch, by_length.buckets()[bucket].length);
  }
}

void SampleBatches::add_batches(uint64_t samples, uint64_t batch, uint64_t length) {
  uint64_t first = batches_.empty() ? 0 : batches_.back().first + batches_.back().count;
  for (uint64_t remaining = samples; remaining > 0;) {
    const uint64_t count = std::min(batch, remaining);
    batches_.push_back({.first = first, .count = count, .length = length});
    first += count;
    remaining -= count;
  }
}

Result<task::Batch> SampleBatches::read(size_t number, Memory& memory) const {
  const Batch& batch = batches_[number];
  const std::vector<TensorSpec> specs =
      batch.length == 0 ? data_.spec() : data_.spec_of_length(batch.length);
  memory.resize(specs.size());
  for (size_t t = 0; t < specs.size(); ++t) {
    const size_t bytes = specs[t].bytes() * batch.count;
    if (memory[t].size() < bytes) memory[t].resize(bytes);
  }
  std::vector<std::span<std::byte>> row(specs.size());
  for (uint64_t i = 0; i < batch.count; ++i) {
    const uint64_t sample = sample_at(batch.first + i);
    for (size_t t = 0; t < specs.size(); ++t)
      row[t] = std::span(memory[t]).subspan(i * specs[t].bytes(), specs[t].bytes());
    STOKER_RETURN_IF_ERROR(data_.read(sample, data::RandomKey{.sample = sample}, row));
  }
  task::Batch tensors;
  for (size_t t = 0; t < specs.size(); ++t) {
    std::vector<int64_t> shape{static_cast<int64_t>(batch.count)};
    shape.insert(shape.end(), specs[t].shape.begin(), specs[t].shape.end());
    const auto options = at::TensorOptions().dtype(model::to_scalar_type(specs[t].dtype));
    tensors.push_back(at::from_blob(memory[t].data(), shape, options));
  }
  return tensors;
}

}  // namespace stoker::evaluator
