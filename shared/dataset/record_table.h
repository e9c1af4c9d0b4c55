// RecordTable: where each record of a set of shards lies, at 8 bytes a number: what is kept in an
// index of the kinds whose records have named fields.
//
// A record is a row of `width` numbers, which mean what its kind wants them to; the label's class
// is a column of its own. Rows are in the order of the shards.
//
// Threads: a value; concurrent const calls are fine.
// Errors:  of(): kCorrupt, where the facts of an index are not those of a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/index.h"
#include "shared/dataset/record_fields.h"

namespace stoker::dataset {

struct RecordTable {
  InputForm form = InputForm::kImage;
  uint64_t classes = 0;
  std::vector<std::string> class_names;
  uint64_t width = 0;
  std::vector<uint64_t> shard_ends;  // of each shard: the number of records up to its end
  std::vector<uint64_t> rows;
  std::vector<uint64_t> labels;  // a class a record; empty where there are no classes

  uint64_t size() const { return shard_ends.empty() ? 0 : shard_ends.back(); }
  std::span<const uint64_t> row(uint64_t record) const {
    return std::span(rows).subspan(record * width, width);
  }
  size_t shard_index(uint64_t record) const;

  IndexMetadata to_metadata() &&;
  // The table of records of these fields, of a kind that keeps `width` numbers a record; that of
  // sequences has one more, the length.
  static Result<RecordTable> of(IndexMetadata metadata, size_t shards, uint64_t width,
                                const RecordFields& fields);
};

}  // namespace stoker::dataset
