// RecordReader: random access to the values of the records of one dataset, and what is known of the
// records without reading them. A format implements this and its index.
//
// Threads:  every method may be called from any thread, concurrently.
// Blocking: read(), prefetch() and the texts for the disk; read_labels() if the labels are in
//           separate files; the others never.
// Errors:   kCorrupt, kIoError, kNotFound; the message names file and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {

// TextSource: access to the texts of records as bytes, for datasets that are one text stream.
//
// Threads, blocking, errors: as RecordReader.
class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual uint64_t text_bytes(uint64_t record) const = 0;
  // Reads the text of the record from offset `from` on.
  virtual Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const = 0;
  // Prefetches the file ranges that read_text() of `count` bytes needs.
  virtual void prefetch_text(uint64_t record, uint64_t from, uint64_t count,
                             files::PrefetchedBytes& bytes) const = 0;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;

  virtual uint64_t size() const = 0;  // records
  // Number of classes; 0 if the target is numeric.
  virtual uint64_t classes() const = 0;
  virtual std::vector<std::string> class_names() const { return {}; }
  // For each file, or other range that is read sequentially, the number of records up to its end;
  // non-decreasing.
  virtual std::vector<uint64_t> shard_ends() const { return {size()}; }
  // Sequences: the length of the record, which can be more than the maximum length of a sample.
  virtual uint64_t length(uint64_t /*record*/) const { return 0; }
  // The class; 0 if it is not known without reading the record.
  virtual uint64_t label(uint64_t /*record*/) const { return 0; }
  // As Dataset::read_labels().
  virtual Status read_labels(uint64_t first, std::span<int64_t> labels) const;

  virtual SampleSource source(uint64_t record) const = 0;
  // Fills in the values, except a label that label() knows. They refer to thread-local memory,
  // valid until the next call of the same thread, or to the tensors.
  virtual Status read(uint64_t record, RecordValues& values) const = 0;
  // Prefetches the file ranges that read() needs.
  virtual void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const = 0;
  // Adds the location of a record whose values were read: "a.csv: line 17 at offset 402: …"; by
  // default its file.
  virtual Status in_record(uint64_t record, const RecordValues& values, const Status& status) const;
  // Null: the format has no texts.
  virtual const TextSource* maybe_texts() const { return nullptr; }
};

}  // namespace stoker::data::record
