// RecordReader: random access to the named values of the records of one set; a format's part in a data set
// whose records have named fields.
//
// Threads:  every method may be called from any thread, concurrently.
// Blocking: as the disk does.
// Errors:   kCorrupt, kIoError, kNotFound; the message names file and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/record_fields.h"
#include "shared/data/record/record_index.h"

namespace stoker::data::record {

class RecordReader {
 public:
  RecordReader(files::FileTable shards, RecordTable table)
      : shards_(std::move(shards)), reader_(shards_), table_(std::move(table)) {}
  virtual ~RecordReader() = default;
  RecordReader(const RecordReader&) = delete;  // the reader refers to the table of files
  RecordReader& operator=(const RecordReader&) = delete;

  const files::FileTable& shards() const { return shards_; }
  const RecordTable& table() const { return table_; }
  SampleSource source(uint64_t record) const {
    return {.file = shards_.path(table_.shard_index(record)), .offset = offset(record)};
  }

  // Of sequences of various lengths: all of the record's, which may be more than is kept.
  uint64_t length(uint64_t record) const { return table_.row(record).back(); }

  // What messages call it.
  virtual std::string what(uint64_t) const { return "record"; }

  // Fills the values of fields.names() but the label's. They point into memory that the calling
  // thread keeps until its next call.
  virtual Status read(uint64_t record, std::span<FieldValue> values) const = 0;
  // What read() takes from the shards.
  virtual void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const = 0;
  // Of a set of texts: how long the record's text is, and its bytes from `from` on. Not called
  // where the kind has none.
  virtual uint64_t text_bytes(uint64_t) const { return 0; }
  virtual Status read_text(uint64_t, uint64_t, std::span<std::byte>) const {
    return Status(StatusCode::kInternal, "a set without texts was asked for one");
  }
  // What read_text() of `count` bytes takes from the shards: mostly the record.
  virtual void prefetch_text(uint64_t record, uint64_t /*from*/, uint64_t /*count*/,
                             files::PrefetchedBytes& bytes) const {
    prefetch(record, bytes);
  }

 protected:
  virtual uint64_t offset(uint64_t record) const = 0;
  const files::FileReader& reader() const { return reader_; }

 private:
  // Constant after construction.
  const files::FileTable shards_;
  const files::FileReader reader_;
  const RecordTable table_;
};

// For DatasetFormatOps::fingerprint_text of a format that is made of records.
Result<std::string> record_fingerprint_text(std::string_view format, const DatasetRequest& request);

// The data set over records: `split` is by records, or by bytes of a stream of texts.
Result<std::unique_ptr<Dataset>> make_record_dataset(const DatasetRequest& request,
                                                     RecordFields fields, std::string fingerprint,
                                                     std::unique_ptr<RecordReader> records);

}  // namespace stoker::data::record
