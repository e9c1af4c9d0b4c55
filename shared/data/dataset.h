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

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual uint64_t size() const = 0;  // samples; at least 1
  // One sample's tensors, without the batch dimension: language model {"tokens" [block_size+1]},
  // classification {"input", "label" I64 []}, regression {"input", "target" F32 [m]}. Pictures are
  // U8 [channels, height, width].
  virtual const std::vector<TensorSpec>& spec() const = 0;
  virtual uint64_t classes()
      const = 0;  // of labels, or size of the vocabulary; 0 where the target is a number
  virtual std::vector<std::string> class_names() const { return {}; }
  // Hex SHA-256 over what was indexed (names, sizes, times, split …): another fingerprint = other
  // samples.
  virtual const std::string& fingerprint() const = 0;
  virtual SampleSource source(uint64_t sample) const = 0;
  // What is read in one go where random access is dear, such as the samples of one file: for each
  // shard the number of samples up to its end. Strictly increasing; the last is size().
  virtual std::vector<uint64_t> shard_ends() const { return {size()}; }
  // Of a mixture: the samples of each of its sets, which are numbered one set after the other.
  virtual std::vector<uint64_t> component_sizes() const { return {size()}; }
  // Of sequences of various lengths: the length that spec() is for, and how many places of that a
  // sample fills itself; the rest of it is padding. 0: all samples have the shape of spec().
  virtual uint64_t max_length() const { return 0; }
  virtual uint64_t length(uint64_t /*sample*/) const { return 0; }
  // spec() as it is in a batch whose longest sample has at most this length, up to longest().
  virtual std::vector<TensorSpec> spec_of_length(uint64_t /*length*/) const { return spec(); }
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
  // Descriptors that read() writes to: of files in which samples are kept (a decoded cache).
  virtual std::vector<int> writable_fds() const { return {}; }
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
