// Dataset: random access to the samples of one named data set.
//
// A set is scanned and indexed once (index.h), so that every process that opens the same index sees
// the same samples under the same numbers, whatever happens to the folder meanwhile.
//
// Threads:  every method may be called from any thread, concurrently; reading uses pread, never
//           mmap (a truncated file is a short read, not a SIGBUS).
// Blocking: read() as the disk does.
// Errors:   read(): kCorrupt (the sample is not what its format allows), kIoError, kNotFound; the
//           message names file and offset. The output bytes are then unspecified, and the dataset
//           stays usable.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/counter_rng.h"

namespace stoker::data::files {
class PrefetchedBytes;
}  // namespace stoker::data::files

namespace stoker::data {

// Where a sample comes from, for messages, ledgers and `stokerctl show-batch`.
struct SampleSource {
  std::string file;          // empty: synthetic
  uint64_t offset = 0;       // of the first byte, or of the record
  std::string dataset = {};  // of a mixture: the name of the sample's set
};

// One of several samples that are read together.
struct SampleReadRequest {
  uint64_t sample = 0;
  RandomKey random_key;
};
// How many of them were read, and the error of the next where these are not all.
struct BatchReadResult {
  size_t good = 0;
  Status status;
};

// What a data set is; constant while it is open.
struct DatasetInfo {
  uint64_t size = 0;  // samples; at least 1
  // Hex SHA-256 over what was indexed (names, sizes, times, split …): another fingerprint = other
  // samples.
  std::string fingerprint = {};
  // One sample's tensors, without the batch dimension: language model {"tokens" [block_size+1]},
  // classification {"input", "label" I64 []}, regression {"input", "target" F32 [m]}. Images are
  // U8 [channels, height, width]. Of sequences of variable length, those of the longest.
  std::vector<TensorSpec> spec = {};
  uint64_t classes = 0;  // of labels, or size of the vocabulary; 0 where the target is a number
  std::vector<std::string> class_names = {};
  // What is read in one go where random access is dear, such as the samples of one file: for each
  // shard the number of samples up to its end. Strictly increasing; the last is `size`. Empty: one shard.
  std::vector<uint64_t> shard_ends = {};
  // Of a mixture: the samples of each of its data sets, which are numbered one after the other. Empty:
  // no mixture.
  std::vector<uint64_t> component_sizes = {};
  // Of sequences of variable length: the length that `spec` is for, and the tensors whose first
  // dimension it is. 0: all samples have the shape of `spec`.
  uint64_t max_length = 0;
  std::vector<size_t> length_tensors = {};
  // Descriptors that read() writes to: of files in which samples are kept (a decoded cache).
  std::vector<int> writable_fds = {};
};

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
  // spec() as it is in a batch whose longest sample has at most this length, up to max_length().
  std::vector<TensorSpec> spec_of_length(uint64_t length) const;

  virtual SampleSource source(uint64_t sample) const = 0;
  // Of sequences of variable length: how many steps of the sample are its own; the rest of spec() is
  // padding. 0: all samples have the shape of spec().
  virtual uint64_t length(uint64_t /*sample*/) const { return 0; }
  // What read() draws at random for this sample, in words for people: "crop=12,40,180x180 flip".
  // Empty where nothing is drawn.
  virtual std::string describe_transforms(uint64_t /*sample*/, const RandomKey& /*draw*/) const {
    return {};
  }

  // Writes sample `sample` into `outputs`, one span per tensor of spec(), each exactly that
  // tensor's bytes; or those of spec_of_length(), for a length not below the sample's.
  virtual Status read(uint64_t sample, const RandomKey& random_key,
                      std::span<const std::span<std::byte>> outputs) const = 0;
  // The labels of samples from `first` on, where each has one class and all are found without reading
  // samples. One that is no class is given as it stands; read() refuses its sample. kNotFound: they are
  // not found so.
  virtual Status read_labels(uint64_t first, std::span<int64_t> labels) const;
  // Several samples, the i-th into the i-th row of each of `rows`, which has room for so many of that
  // tensor, one after another; up to the first that cannot be read. The same as read() of each.
  virtual BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                                     std::span<const std::span<std::byte>> rows) const;
  // Samples that cost less to keep than to read again may stay in memory once they were read, where
  // all of the set's have room: takes what they may need off `room`, bytes. Before the first read().
  virtual void enable_memory_cache(uint64_t& /*room*/) const {}
  // Reads ahead what read() of this sample takes from files, and looks at none of it. Whoever then
  // reads the sample holding `bytes` gets the same as without. Nothing where there are no files.
  virtual void prefetch(uint64_t /*sample*/, files::PrefetchedBytes& /*bytes*/) const {}

 private:
  std::vector<uint64_t> ends_or_size(const std::vector<uint64_t>& ends) const {
    return ends.empty() ? std::vector<uint64_t>{size()} : ends;
  }
};

// RowOutputs: the rows of a batch's tensors, each of which has its rows one after another.
//
// Threads: one at a time.
// Owner:   the bytes must outlive this object.
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

}  // namespace stoker::data
