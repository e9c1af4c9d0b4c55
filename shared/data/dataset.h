// Dataset: random access to the samples of one named dataset.
//
// A dataset is scanned and indexed once (files/index.h), so that all processes that open the same
// index see the same samples with the same numbers, even if the folder changes meanwhile.
//
// Threads:  every method may be called from any thread, concurrently. Reads use pread, never mmap
//           (a truncated file is a short read, not a SIGBUS).
// Blocking: read() for the disk.
// Errors:   read(): kCorrupt (the sample is invalid in its format), kIoError, kNotFound; the
//           message names file and offset. The output bytes are then unspecified, and the dataset
//           remains usable.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/counter_rng.h"

namespace stoker::data::files {
class PrefetchedBytes;
}  // namespace stoker::data::files

namespace stoker::data {

// Origin of a sample, for messages, sample error records and `stokerctl show-batch`.
struct SampleSource {
  std::string file;          // empty: synthetic
  uint64_t offset = 0;       // of the first byte, or of the record
  std::string dataset = {};  // mixture: name of the dataset of the sample
};
// For errors of the sample: "FILE: the sample at offset 4711".
std::string to_string(const SampleSource& source);

// One of several samples that are read together.
struct SampleReadRequest {
  uint64_t sample = 0;
  RandomKey random_key;
};
// The number of samples read, and the error of the next one if not all were read.
struct BatchReadResult {
  size_t good = 0;
  Status status;
};

// kNotFound: what read_labels() returns if the labels are not known without reading the samples.
Status labels_unknown();

// SampleFiles: the files behind the samples of a dataset, for read-ahead and `stokerctl
// show-batch`. The number of a sample is that of the dataset.
//
// Threads, blocking: as Dataset::read().
class SampleFiles {
 public:
  virtual ~SampleFiles() = default;

  // Reads the file ranges that Dataset::read() of this sample will need into `bytes`, without
  // parsing them. A later read() of a thread that holds `bytes` returns the same result as without.
  virtual void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const = 0;
  // The random parameters that Dataset::read() uses for this sample, for display:
  // "crop=12,40,180x180 flip". Empty if there are none.
  virtual std::string describe_transforms(uint64_t /*sample*/,
                                          const RandomKey& /*random_key*/) const {
    return {};
  }
};

// Properties of a dataset; constant while it is open.
struct DatasetInfo {
  uint64_t size = 0;  // samples; at least 1
  // Hex SHA-256 of the indexed data (names, sizes, times, split, ...). Different samples have a
  // different fingerprint.
  std::string fingerprint = {};
  // The tensors of one sample, without the batch dimension: language model {"tokens"
  // [block_size+1]}, classification {"input", "label" I64 []}, regression {"input", "target" F32
  // [m]}. Images are U8 [channels, height, width]. Variable-length sequences: those of the longest.
  std::vector<TensorSpec> spec = {};
  uint64_t classes = 0;  // number of classes, or vocabulary size; 0 if the target is numeric
  std::vector<std::string> class_names = {};
  // The names of the values that the input consists of, if they have names.
  std::vector<std::string> input_columns = {};
  std::vector<std::string> target_columns = {};  // the same for a target of numbers
  // Units of sequential access for storage with slow random access, such as the samples of one
  // file: cumulative number of samples up to the end of each shard. Strictly increasing; the last
  // is `size`. Empty: a single shard.
  std::vector<uint64_t> shard_ends = {};
  // Mixture: number of samples of each dataset. Samples are numbered consecutively, one dataset
  // after the other. Empty: not a mixture.
  std::vector<uint64_t> component_sizes = {};
  // Variable-length sequences: the length of `spec`, and the tensors whose first dimension is the
  // length. 0: all samples have the shape of `spec`.
  uint64_t max_length = 0;
  std::vector<size_t> length_tensors = {};
  // Descriptors that read() writes to (decoded cache). The files keep their size.
  std::vector<int> writable_fds = {};
  // Part of the dataset, and valid as long as it. A dataset that numbers its samples differently
  // from the one it reads must not pass on the latter's. Null: no files.
  const SampleFiles* maybe_files = nullptr;
};

inline DatasetSchema schema_of(const DatasetInfo& info) {
  return {.num_classes = info.classes,
          .class_names = info.class_names,
          .input_columns = info.input_columns,
          .target_columns = info.target_columns};
}

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual const DatasetInfo& info() const = 0;
  uint64_t size() const { return info().size; }
  const std::vector<TensorSpec>& spec() const { return info().spec; }
  uint64_t classes() const { return info().classes; }
  const std::vector<std::string>& class_names() const { return info().class_names; }
  const std::string& fingerprint() const { return info().fingerprint; }
  std::vector<uint64_t> shard_ends() const { return ends_or_size(info().shard_ends); }
  std::vector<uint64_t> component_sizes() const { return ends_or_size(info().component_sizes); }
  uint64_t max_length() const { return info().max_length; }
  const std::vector<int>& writable_fds() const { return info().writable_fds; }
  // spec() of a batch whose longest sample has at most this length, which is at most max_length();
  // 0: spec().
  std::vector<TensorSpec> spec_of_length(uint64_t length) const;

  virtual SampleSource source(uint64_t sample) const = 0;
  // Variable-length sequences: the number of valid time steps of a sample; the rest of spec() is
  // padding. 0: all samples have the shape of spec().
  virtual uint64_t length(uint64_t /*sample*/) const { return 0; }

  // Reads sample `sample` into `outputs`: one span per tensor of spec(), or of spec_of_length() for
  // a length not below that of the sample. Each span must have exactly the size of its tensor.
  virtual Status read(uint64_t sample, const RandomKey& random_key,
                      std::span<const std::span<std::byte>> outputs) const = 0;
  // Labels of the samples from `first`, if each sample has one class that is known without reading
  // the sample. An invalid label is returned unchanged; read() rejects its sample. kNotFound: the
  // labels are not known without reading.
  virtual Status read_labels(uint64_t first, std::span<int64_t> labels) const;
  // Reads several samples up to the first that fails; equivalent to read() of each. `rows`: for
  // each tensor, contiguous memory for as many rows as there are samples; sample i is written to
  // row i.
  virtual BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                                     std::span<const std::span<std::byte>> rows) const;

 private:
  std::vector<uint64_t> ends_or_size(const std::vector<uint64_t>& ends) const {
    return ends.empty() ? std::vector<uint64_t>{size()} : ends;
  }
};

// RowOutputs: access to single rows of the tensors of a batch, whose rows are contiguous.
//
// Threads:   one at a time.
// Ownership: the bytes must outlive this object.
class RowOutputs {
 public:
  // Each of `rows` contains `count` rows of one tensor.
  RowOutputs(std::span<const std::span<std::byte>> rows, size_t count)
      : rows_(rows), taken_(rows.size()), count_(count) {
    row_bytes_.reserve(rows.size());
    for (const auto& tensor : rows) row_bytes_.push_back(tensor.size() / count);
  }

  // The row of each tensor; valid until the next call.
  std::span<const std::span<std::byte>> of(size_t row) { return of(row, 1); }
  // `count` consecutive rows of each tensor.
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
  std::vector<std::span<std::byte>> taken_;  // result of the last of()
  const size_t count_;
};

}  // namespace stoker::data
