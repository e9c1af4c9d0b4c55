// tfrecord_frame: the framing of the records of a TFRecord file.
//
// Format: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data;
//         little-endian.
// Errors: kCorrupt with the checksum that does not match.
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
constexpr uint64_t kFrameTail = 4;   // bytes after the data

// Length of the data. `head`: the first kFrameHead bytes of the frame.
Result<uint64_t> frame_length(std::span<const std::byte> head);

// The data of a frame, after verifying its checksums. `bytes` starts with the frame and can be
// longer.
Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes);

// ExampleValues: decodes the named features of one serialized Example into field values.
//
// Threads: one at a time. Values refer to the bytes of the Example and to memory of this object,
//          and are valid until the next call of find().
// Errors:  kCorrupt with the feature; the caller adds the record.
class ExampleValues {
 public:
  // Locates the features of spec.names. `example`: the complete Example.
  Status find(std::span<const std::byte> example, const record::SampleSpec& spec);
  // The value of spec.names[name]; time steps are concatenated. In a sequence, each step of the
  // input must have the number of elements of the input's step, each step of another field one.
  Result<record::FieldValue> value(const record::SampleSpec& spec, size_t name);

 private:
  Result<record::FieldValue> decode(const record::SampleSpec& spec, size_t name);

  std::span<const std::byte> example_;
  std::vector<FeatureLocation> locations_;
  std::vector<std::vector<int64_t>> ints_;  // one list per name
  std::vector<std::vector<float>> floats_;
  std::string texts_;  // captions
};

// tfrecord_index: scans one TFRecord file and adds its records to the index.
//
// Reads frames, feature names and labels and skips everything else. Records of sequences are read
// completely to determine their length. A row of the table has the offset of a record and, for
// text, the size of the text in bytes.
//
// Errors: kCorrupt with file and offset; those of RecordIndexBuilder.
constexpr uint64_t kMaxTfrecordBytes = uint64_t{256} << 20;  // of the data of a record

inline uint64_t tfrecord_row_width(const record::SampleSpec& spec) {
  return spec.is_text() ? 2 : 1;
}

Status index_tfrecord_shard(const record::SampleSpec& spec, files::ByteSource& shard,
                            record::RecordIndexBuilder& index);

}  // namespace stoker::data::format
