// tfrecord_index: goes through one TFRecord file and puts its records into the index.
//
// Frames, names of features and labels are read, what lies between them is skipped; of sequences
// each record is read whole, for its length. A row of the table is the offset of a record, and for
// texts the bytes of its text.
//
// Errors: kCorrupt, naming file and offset; those of RecordIndexBuilder.
#pragma once

#include <cstdint>

#include "shared/base/status.h"
#include "shared/dataset/byte_source.h"
#include "shared/dataset/record_fields.h"
#include "shared/dataset/record_index.h"

namespace stoker::dataset {

constexpr uint64_t kMaxTfrecordBytes = uint64_t{256} << 20;  // bytes of a record's data

inline uint64_t tfrecord_row_width(const RecordFields& fields) { return fields.is_text() ? 2 : 1; }

Status index_tfrecord_shard(const RecordFields& fields, ByteSource& shard,
                            RecordIndexBuilder& index);

}  // namespace stoker::dataset
