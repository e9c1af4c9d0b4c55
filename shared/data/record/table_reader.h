// TableReader: base class of RecordReaders whose records are located in shards by a RecordTable.
//
// Threads, blocking, errors: as RecordReader.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/record_reader.h"

namespace stoker::data::record {

class TableReader : public RecordReader {
 public:
  TableReader(files::FileTable shards, RecordTable table)
      : shards_(std::move(shards)), reader_(shards_), table_(std::move(table)) {}
  TableReader(const TableReader&) = delete;  // reader_ refers to shards_
  TableReader& operator=(const TableReader&) = delete;

  uint64_t size() const final { return table_.size(); }
  uint64_t classes() const final { return table_.classes; }
  std::vector<std::string> class_names() const final { return table_.class_names; }
  std::vector<uint64_t> shard_ends() const final { return table_.shard_ends; }
  // Only for sequences: the length is the last column.
  uint64_t length(uint64_t record) const final { return table_.row(record).back(); }
  uint64_t label(uint64_t record) const final {
    return table_.labels.empty() ? 0 : table_.labels[record];
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const final {
    if (table_.labels.empty()) return RecordReader::read_labels(first, labels);
    for (int64_t& label : labels) label = static_cast<int64_t>(table_.labels[first++]);
    return {};
  }
  SampleSource source(uint64_t record) const final {
    return {.file = shards_.path(table_.shard_index(record)), .offset = offset(record)};
  }
  Status in_record(uint64_t record, const RecordValues&, const Status& status) const final {
    return at(record, status);
  }

 protected:
  const files::FileTable& shards() const { return shards_; }
  const files::FileReader& reader() const { return reader_; }
  const RecordTable& table() const { return table_; }

  virtual uint64_t offset(uint64_t record) const = 0;
  // The record in messages.
  virtual std::string what(uint64_t /*record*/) const { return "record"; }
  // Adds the location: "a.rec: record at offset 402: …".
  Status at(uint64_t record, const Status& status) const {
    return status.ok() ? status : at(record, what(record), status);
  }
  // The same with another name for the record.
  Status at(uint64_t record, const std::string& name, const Status& status) const {
    const SampleSource where = source(record);
    return status.with_context(where.file + ": " + name + " at offset " +
                               std::to_string(where.offset));
  }

 private:
  // Constant after construction.
  const files::FileTable shards_;
  const files::FileReader reader_;
  const RecordTable table_;
};

}  // namespace stoker::data::record
