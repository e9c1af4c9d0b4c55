// RecordDecoder: decodes records of a stream to samples, each from its bytes alone.
//
// The samples are those that the indexed dataset with the same settings has. Without an index, nothing
// is known of other records: labels are numbers below data.NAME.num_classes, an input that is no image
// consists of numbers, and texts need sequence.max_length.
//
// Threads: one at a time.
// Errors:  make(): kInvalidArgument with the setting. read() and write(): kCorrupt with the field,
//          kOutOfMemory; the caller adds the record. The outputs are then unspecified, and the next
//          record can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/counter_rng.h"
#include "shared/data/dataset_request.h"

namespace stoker::data::format {
struct FramedFormat;
}  // namespace stoker::data::format

namespace stoker::data::stream {

class RecordDecoder {
 public:
  static Result<std::unique_ptr<RecordDecoder>> make(const DatasetRequest& request);
  // For records of this format, whatever the one of the request is.
  static Result<std::unique_ptr<RecordDecoder>> make(const DatasetRequest& request,
                                                     const format::FramedFormat& format);
  virtual ~RecordDecoder() = default;

  // The tensors of a sample whose length is at most `length`; 0: of any sample.
  virtual std::vector<TensorSpec> spec(uint64_t length) const = 0;
  virtual uint64_t classes() const = 0;  // as Dataset::classes()
  // As in DatasetInfo.
  virtual uint64_t max_length() const = 0;
  virtual std::vector<size_t> length_tensors() const = 0;

  // Finds the values of a record (StreamRecord::bytes), which must remain valid until write(). False:
  // the record is dropped, as on_missing_field or sequence.on_overflow says.
  virtual Result<bool> read(std::span<const std::byte> record) = 0;
  // Of the record that was read; 0 without fields.priority.
  virtual int64_t priority() const { return 0; }
  // The length of the record that was read, after truncation; 0: all samples have the same.
  virtual uint64_t length() const = 0;
  // Writes the tensors of the record that was read. `outputs`: those of spec() for a length not below
  // length().
  virtual Status write(const RandomKey& random_key,
                       std::span<const std::span<std::byte>> outputs) = 0;
};

}  // namespace stoker::data::stream
