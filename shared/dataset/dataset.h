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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"
#include "shared/dataset/scan_progress.h"

namespace stoker::dataset {

class PrefetchedBytes;

// Where a sample comes from, for messages, ledgers and `stokerctl show-batch`.
struct SampleSource {
  std::string file;          // empty: synthetic
  uint64_t offset = 0;       // of the first byte, or of the record
  std::string dataset = {};  // of a mixture: the name of the sample's set
};

// What random choices while reading one sample depend on: nothing else may.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t sample = 0;
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
  virtual void prefetch(uint64_t /*sample*/, PrefetchedBytes& /*bytes*/) const {}
  // Descriptors that read() writes to: of files in which samples are kept (a decoded cache).
  virtual std::vector<int> writable_fds() const { return {}; }
};

// Scans (or finds the scan cached under `index_dir` unchanged) and opens. Errors name the path:
// kNotFound (no such file or folder, or nothing in it that fits: "data.train.path: … holds no file
// that matches '*.h'"), kPermission, kInvalidArgument (the config), kCorrupt (a file is not of this
// kind), kIoError. `dataset_name` ("train") is for messages and for the index file's name.
// A mixture or concat opens its sets as well: it needs all of them.
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const ScanProgress& progress);
// A set that has a format.
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const ScanProgress& progress);

// Opens through the index that open_dataset() left, without looking at the folder again: the same
// samples, or an error. kNotFound: there is no index yet. kMismatch when the samples have another
// fingerprint than `fingerprint`; where that is empty, they are what the index says.
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint);
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint);

// "text tokens image_folder image_list …": the formats, for messages.
std::string supported_formats();

}  // namespace stoker::dataset
