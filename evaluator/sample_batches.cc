#include "evaluator/sample_batches.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "shared/data/order/bucket_plan.h"
#include "shared/model/torch_dtype.h"

namespace stoker::evaluator {

SampleBatches::SampleBatches(const data::Dataset& data, const Subset& subset, uint64_t batch,
                             std::span<const int64_t> buckets, IsQuarantined is_quarantined)
    : data_(data), subset_(subset), is_quarantined_(std::move(is_quarantined)) {
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

uint64_t SampleBatches::evaluated_sample(uint64_t i) const {
  for (const uint64_t position : excluded_) {
    if (position > i) break;
    ++i;
  }
  return sample_at(i);
}

Result<size_t> SampleBatches::read_rows(const Batch& batch,
                                        std::span<const std::span<std::byte>> rows) {
  std::vector<uint64_t> positions;
  std::vector<data::SampleReadRequest> samples;
  for (uint64_t position = batch.first; position < batch.first + batch.count; ++position) {
    if (excluded_.contains(position)) continue;
    const uint64_t sample = sample_at(position);
    positions.push_back(position);
    samples.push_back({.sample = sample, .random_key = {.sample = sample}});
  }
  data::RowOutputs outputs(rows, batch.count);
  size_t done = 0;
  while (done < samples.size()) {
    const std::span<const data::SampleReadRequest> rest = std::span(samples).subspan(done);
    data::BatchReadResult read = data_.read_batch(rest, outputs.of(done, rest.size()));
    done += read.good;
    if (read.status.ok()) continue;
    if (!is_quarantined_ || !is_quarantined_(samples[done].sample)) return std::move(read.status);
    excluded_.insert(positions[done]);
    positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(done));
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(done));
  }
  return done;
}

Result<task::Batch> SampleBatches::read(size_t number, Memory& memory) {
  const Batch& batch = batches_[number];
  const std::vector<TensorSpec> specs = data_.spec_of_length(batch.length);
  memory.resize(specs.size());
  for (size_t t = 0; t < specs.size(); ++t) {
    const size_t bytes = specs[t].bytes() * batch.count;
    if (memory[t].size() < bytes) memory[t].resize(bytes);
  }
  std::vector<std::span<std::byte>> rows;
  for (size_t t = 0; t < specs.size(); ++t)
    rows.push_back(std::span(memory[t]).first(specs[t].bytes() * batch.count));
  STOKER_ASSIGN_OR_RETURN(const size_t count, read_rows(batch, rows));
  task::Batch tensors;
  if (count == 0) return tensors;
  for (size_t t = 0; t < specs.size(); ++t) {
    std::vector<int64_t> shape{static_cast<int64_t>(count)};
    shape.insert(shape.end(), specs[t].shape.begin(), specs[t].shape.end());
    const auto options = at::TensorOptions().dtype(model::to_scalar_type(specs[t].dtype));
    tensors.push_back(at::from_blob(memory[t].data(), shape, options));
  }
  return tensors;
}

}  // namespace stoker::evaluator
