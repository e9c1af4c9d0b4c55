// tfrecord_frame: the frame around each record of a TFRecord file.
//
// Format: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data;
//         little-endian.
// Errors: kCorrupt, saying which checksum is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"
#include "shared/data/format/tf_example.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

constexpr uint64_t kFrameHead = 12;  // bytes before the data
constexpr uint64_t kFrameTail = 4;   // after it

// The length of the data that follows these kFrameHead bytes.
Result<uint64_t> frame_length(std::span<const std::byte> head);

// The data of a frame, checked. `bytes` begin with the frame, and may go on after it.
Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes);

// ExampleValues: the values of the named features of one encoded Example, ready for a sample.
//
// Threads: one at a time. Values point into the Example's bytes and into this object's memory, until
//          the next call of find().
// Errors:  kCorrupt, naming the feature; the caller adds which record.
class ExampleValues {
 public:
  // Finds the features of spec.names in all of an Example's bytes.
  Status find(std::span<const std::byte> example, const record::SampleSpec& spec);
  // That of spec.names[name]. Of steps, the numbers of one after another; of a sequence's input
  // each must have as many as its places have, of other values of sequences one.
  Result<record::FieldValue> value(const record::SampleSpec& spec, size_t name);

 private:
  Result<record::FieldValue> decode(const record::SampleSpec& spec, size_t name);

  std::span<const std::byte> example_;
  std::vector<FeatureLocation> locations_;
  std::vector<std::vector<int64_t>> ints_;  // a list a name
  std::vector<std::vector<float>> floats_;
};

// tfrecord_index: goes through one TFRecord file and puts its records into the index.
//
// Frames, names of features and labels are read, what lies between them is skipped; of sequences
// each record is read whole, for its length. A row of the table is the offset of a record, and for
// texts the bytes of its text.
//
// Errors: kCorrupt, naming file and offset; those of RecordIndexBuilder.
constexpr uint64_t kMaxTfrecordBytes = uint64_t{256} << 20;  // bytes of a record's data

inline uint64_t tfrecord_row_width(const record::SampleSpec& spec) {
  return spec.is_text() ? 2 : 1;
}

Status index_tfrecord_shard(const record::SampleSpec& spec, files::ByteSource& shard,
                            record::RecordIndexBuilder& index);

}  // namespace stoker::data::format
