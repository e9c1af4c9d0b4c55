// RecordCatalog: what a dataset knows of its records without reading them.
//
// Threads:  every method may be called from any thread, concurrently.
// Blocking: read_labels() as the labels' files do; the rest not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/record/sample_assembler.h"

namespace stoker::data::record {

class RecordCatalog {
 public:
  virtual ~RecordCatalog() = default;

  virtual uint64_t size() const = 0;  // records
  // Number of classes; 0 if the target is numeric.
  virtual uint64_t classes() const = 0;
  virtual std::vector<std::string> class_names() const { return {}; }
  // For each file, or other range that is read sequentially, the number of records up to its end;
  // non-decreasing.
  virtual std::vector<uint64_t> shard_ends() const { return {size()}; }
  // Of sequences: all of the record's, which may be more than a sample keeps.
  virtual uint64_t length(uint64_t /*record*/) const { return 0; }
  // The class; 0 where only reading the record tells.
  virtual uint64_t label(uint64_t /*record*/) const { return 0; }
  // As Dataset::read_labels().
  virtual Status read_labels(uint64_t first, std::span<int64_t> labels) const;
};

// TextSource: the texts of records as bytes, for datasets that are one stream of them.
//
// Threads, blocking, errors: as RecordReader.
class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual uint64_t text_bytes(uint64_t record) const = 0;
  // The bytes of the record's text from `from` on.
  virtual Status read_text(uint64_t record, uint64_t from, std::span<std::byte> out) const = 0;
  // What read_text() of `count` bytes takes from the files.
  virtual void prefetch_text(uint64_t record, uint64_t from, uint64_t count,
                             files::PrefetchedBytes& bytes) const = 0;
};

// RecordReader: random access to the values of the records of one dataset. A format implements this and
// its index.
//
// Threads:  every method may be called from any thread, concurrently.
// Blocking: as the disk does.
// Errors:   kCorrupt, kIoError, kNotFound; the message names file and offset.
class RecordReader : public RecordCatalog {
 public:
  virtual SampleSource source(uint64_t record) const = 0;
  // Fills the values, but that of a label that the catalog knows. They point into memory that the
  // calling thread keeps until its next call, or into the tensors.
  virtual Status read(uint64_t record, RecordValues& values) const = 0;
  // What read() takes from the files.
  virtual void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const = 0;
  // `status` of a record whose values were read, with where it is: "a.csv: line 17 at offset 402: …".
  virtual Status in_record(uint64_t record, const RecordValues& values,
                           const Status& status) const = 0;
  // Null: the format has no texts.
  virtual const TextSource* maybe_texts() const { return nullptr; }
  // As Dataset::enable_memory_cache(), of `count` records from `first` on.
  virtual void enable_memory_cache(uint64_t /*first*/, uint64_t /*count*/,
                                   uint64_t& /*room*/) const {}
};

}  // namespace stoker::data::record
