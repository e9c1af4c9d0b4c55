#include "shared/data/dataset.h"

#include "shared/data/files/file_reader.h"

namespace stoker::data {

std::string to_string(const SampleSource& source) {
  return source.file + ": the sample at offset " + std::to_string(source.offset);
}

std::vector<TensorSpec> Dataset::spec_of_length(uint64_t length) const {
  std::vector<TensorSpec> tensors = spec();
  if (length == 0) return tensors;
  for (const size_t tensor : info().length_tensors)
    tensors[tensor].shape.front() = static_cast<int64_t>(length);
  return tensors;
}

Status labels_unknown() {
  return Status(StatusCode::kNotFound, "which class a sample has, only reading it tells");
}

Status Dataset::read_labels(uint64_t /*first*/, std::span<int64_t> /*labels*/) const {
  return labels_unknown();
}

namespace {

BatchReadResult read_each(const Dataset& data, std::span<const SampleReadRequest> samples,
                          std::span<const std::span<std::byte>> rows) {
  RowOutputs outputs(rows, samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    Status status = data.read(samples[i].sample, samples[i].random_key, outputs.of(i));
    if (!status.ok()) return {.good = i, .status = std::move(status)};
  }
  return {.good = samples.size(), .status = {}};
}

}  // namespace

BatchReadResult Dataset::read_batch(std::span<const SampleReadRequest> samples,
                                    std::span<const std::span<std::byte>> rows) const {
  {
    const files::FileReader::ReadsTogether together;
    BatchReadResult read = read_each(*this, samples, rows);
    // Once for all: it would take a fifth of the time of a small sample.
    if (together.check().ok()) return read;
  }
  // A file has changed: those read before that are good, so each is read and compared alone.
  return read_each(*this, samples, rows);
}

}  // namespace stoker::data
